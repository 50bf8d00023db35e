"""A small GPT of Megatron-core on the bytes of a real text, its optimizer's state streamed.

    torchrun --nproc-per-node 2 examples/megatron_train.py --text t.txt --scratch /nvme --compare
    torchrun --nproc-per-node 4 examples/megatron_train.py --text t.txt --scratch /nvme --tp 2
    ... --save checkpoints --save-every 20            # then kill it whenever you like
    ... --save checkpoints --save-every 20 --resume   # goes on after the newest checkpoint

Ranks that --tp does not take are data-parallel. --compare trains the resident and the streamed
optimizer in lock step and ends with exit code 1 at the first byte that differs. Without a GPU it
runs on CPUs with gloo (megatron_cpu.py, beside this file). The last line is a digest of all
parameters: a run that was killed and resumed has that of one that was not.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

ON_GPU = torch.cuda.is_available()
if not ON_GPU:
    import megatron_cpu

    megatron_cpu.install()

import millpond.megatron  # noqa: E402
from megatron.core import dist_checkpointing, parallel_state  # noqa: E402
from megatron.core.distributed import (  # noqa: E402
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.models.gpt.gpt_model import GPTModel  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed  # noqa: E402
from megatron.core.transformer.module import Float16Module  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

TRACKER = "latest_step"  # names the newest whole checkpoint; written after everything else
METADATA = {"distrib_optim_sharding_type": "dp_reshardable"}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, required=True, help="file whose bytes are learnt")
    parser.add_argument("--scratch", required=True, help="directory on a node-local drive")
    parser.add_argument("--tp", type=int, default=1, help="tensor-parallel ranks (default 1)")
    parser.add_argument("--dp", type=int, default=None,
                        help="data-parallel ranks (default: all ranks / tp)")  # fmt: skip
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--compare", action="store_true", help="resident too, every byte compared")
    which.add_argument("--resident", action="store_true", help="Megatron's optimizer as it is")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--width", type=int, default=64, help="of the hidden state, elements")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--context", type=int, default=64, help="bytes")
    parser.add_argument("--batch", type=int, default=4, help="sequences a data-parallel rank")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--host-memory-mib", type=int, default=64,
                        help="pinned memory of a rank in MiB (default 64)")  # fmt: skip
    parser.add_argument("--save", type=Path, help="directory of checkpoints")
    parser.add_argument("--save-every", type=int, default=20, help="steps (default 20)")
    parser.add_argument(
        "--resume", action="store_true", help="after the newest checkpoint of --save"
    )
    parser.add_argument("--kill-at", type=int, metavar="STEP",
                        help="SIGKILL after this step, to try a resume")  # fmt: skip
    given = parser.parse_args()
    if given.resume and not given.save:
        parser.error("--resume needs --save DIRECTORY, where the checkpoints are")
    if (given.compare or given.resident) and given.save:
        parser.error("--save keeps the streamed run: leave out --compare and --resident")
    return given


def begin(given: argparse.Namespace) -> None:
    """Joins the ranks; data parallelism is what tensor parallelism leaves."""
    dist.init_process_group("cpu:gloo,cuda:nccl" if ON_GPU else "gloo")
    if ON_GPU:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    left, rest = divmod(dist.get_world_size(), given.tp)
    if rest or given.dp not in (None, left):
        sys.exit(
            f"{dist.get_world_size()} ranks are not --tp {given.tp} times --dp "
            f"{given.dp or 'anything'}: start torchrun with --nproc-per-node {given.tp} * dp"
        )
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=given.tp)


class Side:
    """One model with Megatron's optimizer for it, resident or streamed."""

    def __init__(self, given: argparse.Namespace):
        torch.manual_seed(1)
        if ON_GPU:
            model_parallel_cuda_manual_seed(11)  # each side begins with the same weights
        self.given = given
        config = TransformerConfig(
            num_layers=given.layers, hidden_size=given.width, num_attention_heads=4,
            tensor_model_parallel_size=given.tp, use_cpu_initialization=not ON_GPU, bf16=True,
            params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16, hidden_dropout=0.0,
            attention_dropout=0.0, masked_softmax_fusion=False, bias_activation_fusion=False,
            bias_dropout_fusion=False, gradient_accumulation_fusion=False,
            persist_layer_norm=False,
        )  # fmt: skip
        gpt = GPTModel(
            config, get_gpt_layer_local_spec(), vocab_size=256, max_sequence_length=given.context,
            position_embedding_type="learned_absolute", share_embeddings_and_output_weights=False,
        ).cuda()  # fmt: skip
        ddp = DistributedDataParallelConfig(
            grad_reduce_in_fp32=True, use_distributed_optimizer=True
        )
        self.model = DistributedDataParallel(config, ddp, Float16Module(config, gpt))
        self.model.broadcast_params()
        self.optimizer = get_megatron_optimizer(
            OptimizerConfig(
                optimizer="adam", lr=given.lr, weight_decay=0.1, bf16=True, clip_grad=1.0,
                params_dtype=torch.bfloat16, use_distributed_optimizer=True,
            ),
            [self.model],
        )  # fmt: skip

    def step(self, tokens: torch.Tensor) -> float:
        """One step; returns the loss in nats a byte."""
        length = tokens.shape[1] - 1
        places = torch.arange(length, device=tokens.device).expand(len(tokens), -1)
        ones = torch.ones(1, 1, length, length, dtype=torch.bool, device=tokens.device)
        self.model.zero_grad_buffer()
        self.optimizer.zero_grad()
        output = self.model(tokens[:, :-1], places, ones.triu(1), labels=tokens[:, 1:])
        loss = output.float().mean()
        self.optimizer.scale_loss(loss).backward()
        finalize_model_grads([self.model])
        self.optimizer.step()
        return loss.item()

    def state(self, step: int, loading: bool = False) -> dict[str, Any]:
        model = self.model.module.sharded_state_dict()
        optimizer = self.optimizer.sharded_state_dict(model, is_loading=loading, metadata=METADATA)
        return {"model": model, "optimizer": optimizer, "step": step}

    def save(self, step: int) -> None:
        """A checkpoint of its own; the tracker names it when all of it is there."""
        path = self.given.save / f"step_{step:07d}"
        if dist.get_rank() == 0:
            path.mkdir(parents=True, exist_ok=True)
        dist.barrier()
        dist_checkpointing.save(self.state(step), str(path))
        if dist.get_rank() == 0:
            fresh = self.given.save / f"{TRACKER}.new"
            fresh.write_text(path.name)
            fresh.replace(self.given.save / TRACKER)

    def resume(self) -> int:
        """Loads the newest checkpoint, 0 where there is none. Returns its step."""
        tracker = self.given.save / TRACKER
        if not tracker.is_file():
            return 0
        path = self.given.save / tracker.read_text()
        loaded = dist_checkpointing.load(self.state(0, loading=True), str(path))
        self.model.module.load_state_dict(loaded["model"])
        self.optimizer.load_state_dict(loaded["optimizer"])
        return int(loaded["step"])

    def digest(self) -> str:
        """Of all parameters of all ranks."""
        own = hashlib.sha256()
        for parameter in self.model.parameters():
            own.update(parameter.detach().contiguous().cpu().view(torch.uint8).numpy())
        parts: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(parts, own.hexdigest())
        return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


def first_difference(one: torch.nn.Module, other: torch.nn.Module) -> str | None:
    for (name, a), b in zip(one.named_parameters(), other.parameters(), strict=True):
        number = int((a.detach().view(torch.int16) != b.detach().view(torch.int16)).sum())
        if number:
            return f"{name}: {number} of {a.numel()} elements"
    return None


def train(given: argparse.Namespace, sides: dict[str, Side]) -> int:
    """0, or 1 at the first byte that differs."""
    text = torch.frombuffer(bytearray(given.text.read_bytes()), dtype=torch.uint8).long()
    rank, part = dist.get_rank(), parallel_state.get_data_parallel_rank()
    streamed = sides.get("streamed")
    first = streamed.resume() if streamed and given.resume else 0
    if rank == 0 and given.resume:
        print(f"goes on after step {first}", flush=True)
    for step in range(first + 1, given.steps + 1):
        source = torch.Generator().manual_seed(1000 * step + part)  # a step's batch is its own
        at = torch.randint(0, len(text) - given.context - 1, (given.batch,), generator=source)
        rows = torch.stack([text[i : i + given.context + 1] for i in at.tolist()]).cuda()
        losses = [side.step(rows) for side in sides.values()]
        if given.compare and (found := first_difference(*(s.model for s in sides.values()))):
            print(f"rank {rank}, step {step}: the models differ in {found}", file=sys.stderr)
            return 1
        if rank == 0 and (step % 10 == 0 or step in (1, given.steps)):
            print(f"step {step}: loss {losses[-1]:.4f} nats a byte", flush=True)
        if given.save and streamed and step % given.save_every == 0:
            streamed.save(step)
        if step == given.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
    digest = list(sides.values())[-1].digest()
    if rank == 0:
        if given.compare:
            print("all parameters were the same, bit for bit, after every step")
        print(f"parameters {digest}", flush=True)
    return 0


def main() -> int:
    given = arguments()
    begin(given)
    sides = {}
    if given.compare or given.resident:
        sides["resident"] = Side(given)
    if given.resident:
        code = train(given, sides)
    else:
        memory = given.host_memory_mib << 20
        with millpond.megatron.streamed(scratch=given.scratch, host_memory_bytes=memory):
            sides["streamed"] = Side(given)
            code = train(given, sides)
    dist.destroy_process_group()
    return code


if __name__ == "__main__":
    sys.exit(main())
