"""On a rank: what the scenarios share. Saves and loads as Megatron's training does them, and calls
that must be refused."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from cases import CASES
from megatron.core import dist_checkpointing
from training import Run

RANK = int(os.environ["RANK"])
METADATA = {"distrib_optim_sharding_type": "dp_reshardable"}
SEGMENTS = ("main", "exp_avg", "exp_avg_sq")


def options(**more: Any) -> dict[str, Any]:
    """Of a session: a scratch directory of its own below TMPDIR."""
    scratch = tempfile.mkdtemp(dir=os.environ["MILLPOND_SCRATCH"])
    return {"scratch": scratch, "host_memory_bytes": 64 << 20, "log_level": "error"} | more


def state_of(run: Run, loading: bool = False) -> dict[str, Any]:
    model = run.chunks[0].module.sharded_state_dict()
    optimizer = run.optimizer.sharded_state_dict(model, is_loading=loading, metadata=METADATA)
    return {"model": model, "optimizer": optimizer, "iteration": run.step}


def directory(base: Path, name: str) -> Path:
    path = base / name
    if RANK == 0:
        path.mkdir()
    dist.barrier()
    return path


def save(run: Run, path: Path, **kwargs: Any) -> Any:
    return dist_checkpointing.save(state_of(run), str(path), **kwargs)


def load(run: Run, path: Path, **kwargs: Any) -> dict[str, Any]:
    loaded = dist_checkpointing.load(state_of(run, True), str(path), **kwargs)
    loaded = loaded[0] if isinstance(loaded, tuple) else loaded
    run.chunks[0].module.load_state_dict(loaded["model"])
    run.optimizer.load_state_dict(loaded["optimizer"])
    run.step = loaded["iteration"]
    return dict(loaded)


def refused(kind: type[Exception], words: str, call: Any) -> str:
    """That `call` raises on this rank, with these words."""
    try:
        call()
    except kind as error:
        assert words in str(error), (words, str(error))
        return str(error)
    raise AssertionError(f"nothing was raised; wanted {kind.__name__}: {words}")


def train(case: str, steps: int, seed: int = 7) -> Run:
    run = Run.start(CASES[case], seed)
    run.advance(steps)
    return run


def segments_of(member: Any, index: int) -> dict[str, torch.Tensor]:
    """What the store has of a shard, by segment; a native fp32 parameter has no main there."""
    shard = member.shards[index]
    found = {}
    for number, segment in enumerate(SEGMENTS):
        if segment == "main" and shard.native_fp32:
            continue
        values = torch.empty(shard.flat[1] - shard.flat[0])
        if values.numel():
            member.store.read(index, number, 0, values.numel(), values.data_ptr())
        found[segment] = values
    return found


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.contiguous().view(torch.int32), b.contiguous().view(torch.int32))
