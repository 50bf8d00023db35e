"""On a machine with a GPU: a model of 1.6 B parameters under real Megatron, resident and streamed.

    python gpu_run.py resident OUT.json [--steps 6] [--layers 24] [--width 2304]
    python gpu_run.py streamed OUT.json --scratch /nvme [--host-memory-gib 13]
    python gpu_run.py streamed OUT.json --scratch /nvme --pause-after 3 [--memory-saver]
    python gpu_run.py compare RESIDENT.json STREAMED.json

Each run is a process of its own, so that memory is measured from nothing. Needs megatron-core,
host_adapters/python and protobuf on PYTHONPATH, and MILLPOND_PLUGIN. Transformer Engine or apex is
used where it is installed, else torch's AdamW; --inner names another. --memory-saver keeps model
and gradients in a region of torch_memory_saver, whose library LD_PRELOAD must name. What a pause
frees is measured for the whole device: nothing else may use it meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

GIB = 1 << 30


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("mode", choices=["resident", "streamed", "compare"])
    parser.add_argument("files", nargs="+", help="where figures go, or the two files to compare")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=2304)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--scratch", default=None)
    parser.add_argument("--host-memory-gib", type=float, default=None, help="default: auto")
    parser.add_argument("--inner", metavar="MODULE:CLASS", help="the inner Adam, as Megatron's own")
    parser.add_argument("--pause-after", type=int, metavar="STEP",
                        help="streamed: gives memory back after it, takes it again")  # fmt: skip
    parser.add_argument("--memory-saver", action="store_true", help="model and gradients too")
    return parser.parse_args()


def use_inner(name: str) -> None:
    """Megatron builds this class where it would build Transformer Engine's or apex's."""
    from megatron.core import optimizer
    from megatron.core.optimizer import distrib_optimizer

    module, kind = name.split(":")
    adam = getattr(importlib.import_module(module), kind)
    optimizer.Adam = distrib_optimizer.Adam = adam
    optimizer.USING_PYTORCH_OPTIMIZER = False
    distrib_optimizer.HAVE_APEX_OR_TE = distrib_optimizer.USING_TE_OPTIMIZER = True


def pause(session: Any, saver: Any) -> dict[str, Any]:
    """Suspends the store, then the memory saver's region, and takes both again: what each gave
    back to the device, GiB."""
    import torch

    def free() -> float:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info()[0] / GIB

    before, held = free(), session.runtime.figures()
    began = time.monotonic()
    session.pause("optimizer")
    paused = time.monotonic()
    after = free()
    left = session.runtime.figures()
    found = {
        "store_suspend_s": paused - began, "device_freed_gib": after - before,
        "store_device_gib": (held.device_bytes - left.device_bytes) / GIB,
        "store_host_gib": (held.host_bytes - left.host_bytes) / GIB,
    }  # fmt: skip
    if saver is not None:
        saver.pause()
        found["saver_device_gib"] = free() - after
        saver.resume()
    began = time.monotonic()
    session.resume("optimizer")
    return found | {"store_resume_s": time.monotonic() - began}


def train(args: argparse.Namespace) -> dict[str, Any]:
    import millpond.megatron
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
    from megatron.core.transformer.module import Float16Module
    from megatron.core.transformer.transformer_config import TransformerConfig

    torch.cuda.set_device(0)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    store = f"file://{tempfile.mkdtemp()}/ranks"
    dist.init_process_group("cpu:gloo,cuda:nccl", init_method=store, rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    model_parallel_cuda_manual_seed(11)
    torch.manual_seed(11)
    if args.inner:
        use_inner(args.inner)
    saver = None
    if args.memory_saver:
        saver = importlib.import_module("torch_memory_saver").torch_memory_saver
        # Megatron core chooses "torch" when it is imported, whose pools end the process with 1 when
        # the interpreter frees them, outside any region.
        saver.hook_mode = "preload"
    config = TransformerConfig(
        num_layers=args.layers, hidden_size=args.width, num_attention_heads=args.width // 128,
        params_dtype=torch.bfloat16, bf16=True, pipeline_dtype=torch.bfloat16,
        hidden_dropout=0.0, attention_dropout=0.0, masked_softmax_fusion=False,
        bias_activation_fusion=False, bias_dropout_fusion=False,
        gradient_accumulation_fusion=False, persist_layer_norm=False,
    )  # fmt: skip
    ddp = DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=True)
    with saver.region(enable_cpu_backup=True) if saver else contextlib.nullcontext():
        gpt = GPTModel(
            config, get_gpt_layer_local_spec(), vocab_size=args.vocabulary,
            max_sequence_length=args.sequence, position_embedding_type="learned_absolute",
        ).cuda()  # fmt: skip
        model = DistributedDataParallel(config, ddp, Float16Module(config, gpt))
    parameters = sum(p.numel() for p in model.parameters())
    figures: dict[str, Any] = {"mode": args.mode, "parameters": parameters}
    session = None
    if args.mode == "streamed":
        options: dict[str, Any] = {"scratch": args.scratch}
        if args.host_memory_gib is not None:
            options["host_memory_bytes"] = int(args.host_memory_gib * GIB)
        session = millpond.megatron.enable(**options)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    began = time.monotonic()
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam", lr=3e-4, weight_decay=0.1, bf16=True, params_dtype=torch.bfloat16,
            use_distributed_optimizer=True, clip_grad=1.0,
        ),
        [model],
    )  # fmt: skip
    torch.cuda.synchronize()
    figures["construction"] = {
        "seconds": time.monotonic() - began,
        "peak_gib_over_model": (torch.cuda.max_memory_allocated() - before) / GIB,
    }
    inner = type(_first(optimizer).optimizer)
    figures["inner"] = f"{inner.__module__}.{inner.__name__}"
    if session is not None:
        figures["arithmetic"] = session.members()[0].arithmetic
        figures["construction"]["store_device_gib"] = session.runtime.figures().device_bytes / GIB
    source = torch.Generator().manual_seed(5)
    positions = torch.arange(args.sequence, device="cuda").expand(1, -1)
    mask = torch.ones(1, 1, args.sequence, args.sequence, dtype=torch.bool, device="cuda").triu(1)
    figures["steps"] = []
    for step in range(1, args.steps + 1):
        tokens = torch.randint(0, args.vocabulary, (1, args.sequence + 1), generator=source).cuda()
        model.zero_grad_buffer()
        optimizer.zero_grad()
        loss = model(tokens[:, :-1], positions, mask, labels=tokens[:, 1:]).float().mean()
        loss.backward()
        finalize_model_grads([model])
        torch.cuda.synchronize()
        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        began = time.monotonic()
        _, norm, _ = optimizer.step()
        torch.cuda.synchronize()
        whole = hashlib.sha256()
        seconds = time.monotonic() - began
        for parameter in model.parameters():
            whole.update(parameter.detach().view(torch.uint8).cpu().numpy())
        figures["steps"].append({
            "loss": loss.item().hex(), "norm": float(norm).hex(), "params": whole.hexdigest(),
            "seconds": seconds, "allocated_gib": held / GIB,
            "peak_gib": torch.cuda.max_memory_allocated() / GIB,
        })  # fmt: skip
        if session is not None and step == args.pause_after:
            figures["pause"] = pause(session, saver)
    if session is not None:
        figures["store_device_gib"] = session.runtime.figures().device_bytes / GIB
    return figures


def _first(optimizer: Any) -> Any:
    chained = getattr(optimizer, "chained_optimizers", None)
    return _first(chained[0]) if chained else optimizer


def compare(first: Path, second: Path) -> int:
    """0 where every step has the same bits; prints memory and time."""
    resident, streamed = json.loads(first.read_text()), json.loads(second.read_text())
    same = True
    if len(resident["steps"]) != len(streamed["steps"]):
        sys.exit("the runs have other numbers of steps: give both the same --steps")
    for number, (a, b) in enumerate(zip(resident["steps"], streamed["steps"], strict=True), 1):
        equal = all(a[key] == b[key] for key in ("loss", "norm", "params"))
        same &= equal
        print(f"step {number}: {'the same bits' if equal else 'OTHER BITS'}; seconds "
              f"{a['seconds']:.3f} resident, {b['seconds']:.3f} streamed")  # fmt: skip
    n = resident["parameters"]
    own = streamed["store_device_gib"]  # not torch's, so in none of its peaks
    saved = resident["steps"][-1]["peak_gib"] - streamed["steps"][-1]["peak_gib"] - own
    print(f"{n / 1e9:.2f} B parameters; inner optimizers {resident['inner']}, {streamed['inner']}; "
          f"arithmetic {streamed['arithmetic']}")  # fmt: skip
    for run in (resident, streamed):
        print(f"{run['mode']}: construction {run['construction']['peak_gib_over_model']:.2f} GiB "
              f"in {run['construction']['seconds']:.1f} s, step peak "
              f"{run['steps'][-1]['peak_gib']:.2f} GiB")  # fmt: skip
    built = streamed["construction"]["store_device_gib"]
    print(f"the store's own device memory: construction {built:.3f} GiB, steps {own:.3f} GiB")
    print(f"saved {saved:.2f} GiB; 12 bytes a parameter are {12 * n / GIB:.2f} GiB, less 0.50 GiB "
          f"staging {12 * n / GIB - 0.5:.2f} GiB")  # fmt: skip
    for name, value in streamed.get("pause", {}).items():
        print(f"pause: {name} {value:.3f}")
    return 0 if same else 1


def main() -> int:
    args = arguments()
    if args.mode == "compare":
        return compare(Path(args.files[0]), Path(args.files[1]))
    if args.mode == "streamed" and not args.scratch:
        sys.exit("streamed needs --scratch")
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    Path(args.files[0]).write_text(json.dumps(train(args), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
