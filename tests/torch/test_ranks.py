"""DDP and FSDP2 with two gloo processes."""

from __future__ import annotations

import pytest
import torch
from processes import run_ranks

FSDP2 = tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 7)
needs_fsdp2 = pytest.mark.skipif(not FSDP2, reason="FSDP2 on CPU needs torch 2.7 or newer")


def test_ddp(tmp_path) -> None:
    run_ranks(
        "ranks_worker.py", 2, tmp_path,
        "ddp,0,0,100", "ddp,1,0,100", "ddp,1,1,100", "sixteen,ddp,bfloat16,100",
        "sixteen,ddp,float16,20", "a_failure_on_one_rank",
    )  # fmt: skip


def test_what_stands_around_ddp(tmp_path) -> None:
    """Schedulers, GradScaler with an overflow, clipping, accumulation, closures, added groups,
    frozen, tied and unused parameters, maximize."""
    run_ranks(
        "ranks_worker.py", 2, tmp_path,
        "loop,ddp,lambda,fused", "loop,ddp,grows,adam", "loop,ddp_sharded,grows,fused",
        "loop,ddp_sharded,one_cycle,foreach,maximize", "loop,ddp_sharded,cosine",
    )  # fmt: skip


@needs_fsdp2
def test_fsdp2(tmp_path) -> None:
    run_ranks(
        "ranks_worker.py", 2, tmp_path,
        "fsdp_fp32,0,100", "fsdp_fp32,1,100", "sixteen,fsdp,bfloat16,100",
        "sixteen,fsdp,float16,20", "built_before_fully_shard", "save_and_load",
        "swapped_by_accelerate", "two_meshes", "made_on_meta",
    )  # fmt: skip


@needs_fsdp2
def test_what_stands_around_fsdp2(tmp_path) -> None:
    run_ranks(
        "ranks_worker.py", 2, tmp_path,
        "loop,fsdp,lambda,fused", "loop,fsdp,grows,adam", "loop,fsdp,one_cycle,foreach,maximize",
        "loop,fsdp,cosine",
    )  # fmt: skip
