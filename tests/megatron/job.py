"""Start of every program that runs on a rank: shims, process group, model-parallel groups."""

from __future__ import annotations

import os

import megatron_cpu

megatron_cpu.install()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from megatron.core import parallel_state  # noqa: E402


def start() -> int:
    """Joins the ranks; returns this one."""
    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        "gloo",
        init_method="file://" + os.environ["MILLPOND_RENDEZVOUS"],
        rank=rank,
        world_size=size,
    )
    return rank


def lay_out(tp: int = 1, ep: int = 1, etp: int | None = None, pp: int = 1) -> None:
    """Megatron's groups, anew."""
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp,
        expert_model_parallel_size=ep,
        **({} if etp is None else {"expert_tensor_parallel_size": etp}),
    )
