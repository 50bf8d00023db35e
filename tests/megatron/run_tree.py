"""On a rank: Megatron-LM's own `pretrain` (arguments, loop, schedule, timers, writers, checkpoints)
with a small GPT on bytes, streamed where --stream-optimizer-state-to-disk is given.

python run_tree.py OUT MEGATRON'S ARGUMENTS...

Writes OUT.<rank>: JSON with the loss and a digest of all parameters before every iteration's step.
MILLPOND_CHANGE_ARGUMENT=NAME sets args.NAME before the first step, as some trainers do.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
import sys
from pathlib import Path
from typing import Any

import megatron_cpu

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # it would ask the CUDA that is_available promises
megatron_cpu.install()

import millpond.megatron  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

TEXT = Path(__file__).resolve().parents[2] / "README.md"
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
CHANGED = os.environ.get("MILLPOND_CHANGE_ARGUMENT", "")
figures: dict[str, list[str]] = {"losses": [], "params": []}


def for_a_tree() -> None:
    """What training, beyond core, takes for granted: CUDA is there, which start-up demands, and
    nobody needs the C++ index builder, since the data set is this file's."""
    from megatron.core.datasets import utils

    torch.cuda.is_available = lambda: True
    torch.Tensor.pin_memory = lambda self, *_: self
    torch.cuda.memory_allocated = torch.cuda.max_memory_allocated = lambda *_: 0
    torch.cuda.memory_reserved = torch.cuda.max_memory_reserved = lambda *_: 0
    torch.cuda.reset_peak_memory_stats = lambda *_: None
    torch.cuda.memory_stats = lambda *_: dict.fromkeys(("allocation.all.current",), 0)
    utils.compile_helpers = lambda: None


class Bytes(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Sequences of a real text's bytes."""

    def __init__(self, length: int):
        self._text = torch.frombuffer(bytearray(TEXT.read_bytes()), dtype=torch.uint8).long()
        self._length = length

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        begin = index * 37 % (len(self._text) - self._length - 1)
        return {"text": self._text[begin : begin + self._length + 1]}


def model_provider(pre_process: bool = True, post_process: bool = True, *_: Any, **__: Any) -> Any:
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.training import get_args
    from megatron.training.arguments import core_transformer_config_from_args

    torch.cuda.is_available = lambda: False  # start-up has asked
    args = get_args()
    if args.stream_optimizer_state_to_disk:
        millpond.megatron.enable(args)
    return GPTModel(
        core_transformer_config_from_args(args), get_gpt_layer_local_spec(),
        vocab_size=args.padded_vocab_size, max_sequence_length=args.max_position_embeddings,
        pre_process=pre_process, post_process=post_process,
        share_embeddings_and_output_weights=False,
    )  # fmt: skip


def loss_of(model: Any, output: torch.Tensor) -> Any:
    note(model)
    loss = output.float().mean()
    total = loss.detach().clone()
    figures["losses"].append(total.item().hex())
    return loss, {"lm loss": torch.stack([total, torch.ones(())])}


def note(model: Any) -> None:
    """Parameters as they are before this iteration's step."""
    whole = hashlib.sha256()
    for parameter in model.parameters():
        whole.update(parameter.detach().contiguous().view(torch.uint8).numpy())
    figures["params"].append(whole.hexdigest())


def forward_step(data: Any, model: Any, *_: Any) -> Any:
    from megatron.training import get_args

    if CHANGED:
        setattr(get_args(), CHANGED, True)
    text = next(data)["text"]
    inputs, labels = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    length = inputs.shape[1]
    positions = torch.arange(length).expand_as(inputs)
    mask = torch.ones(1, 1, length, length, dtype=torch.bool).triu(1)
    output = model(inputs, positions, mask, labels=labels)
    return output, functools.partial(loss_of, model)


def datasets(_sizes: Any, *_: Any, **__: Any) -> Any:
    from megatron.training import get_args

    return Bytes(get_args().seq_length), None, None


def train() -> None:
    from megatron.core.enums import ModelType
    from megatron.training import arguments, pretrain

    what, add = (ModelType.encoder_or_decoder, forward_step), millpond.megatron.add_arguments
    if "cfg_container" not in inspect.signature(pretrain).parameters:
        pretrain(datasets, model_provider, *what, extra_args_provider=add)
        return
    from megatron.training.argument_utils import pretrain_cfg_container_from_args

    config = pretrain_cfg_container_from_args(arguments.parse_and_validate_args(add))
    pretrain(config, datasets, *what, model_provider)


def main(out: str, *given: str) -> None:
    sys.argv = [sys.argv[0], *given]
    from megatron.training.arguments import parse_args

    for_a_tree()
    parsed = parse_args(millpond.megatron.add_arguments)
    if parsed.stream_optimizer_state_to_disk:
        millpond.megatron.check_arguments(parsed)  # before any process group
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method="file://" + os.environ["MILLPOND_RENDEZVOUS"], rank=RANK,
        world_size=SIZE,
    )  # fmt: skip
    datasets.is_distributed = True  # type: ignore[attr-defined]
    try:
        train()
    finally:
        Path(f"{out}.{RANK}").write_text(json.dumps(figures))
        millpond.megatron.disable()


if __name__ == "__main__":
    main(*sys.argv[1:])
