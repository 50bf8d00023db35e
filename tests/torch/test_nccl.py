"""DDP, FSDP2 and checkpoints on CUDA devices, in a process group that has nccl and no gloo."""

from __future__ import annotations

import pytest
import torch
from processes import run_ranks

DEVICES = torch.cuda.device_count() if torch.cuda.is_available() else 0
needs_one = pytest.mark.skipif(DEVICES < 1, reason="there is no CUDA device here")
needs_two = pytest.mark.skipif(DEVICES < 2, reason="there are no two CUDA devices here")


@pytest.fixture(autouse=True)
def on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLPOND_TEST_DEVICE", "cuda")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@needs_one
def test_fsdp2_on_one_device(tmp_path) -> None:
    """DTensors whose local part is the whole."""
    run_ranks(
        "ranks_worker.py", 1, tmp_path,
        "fsdp_fp32,0,100", "fsdp_fp32,1,100", "sixteen,fsdp,bfloat16,100",
        "sixteen,fsdp,float16,20", "save_and_load",
    )  # fmt: skip
    run_ranks("checkpoint_worker.py", 1, tmp_path, "pair", "marker")


@needs_two
def test_ddp_and_fsdp2(tmp_path) -> None:
    run_ranks(
        "ranks_worker.py", 2, tmp_path,
        "ddp,0,0,100", "ddp,1,1,100", "sixteen,ddp,bfloat16,100", "sixteen,ddp,float16,20",
        "a_failure_on_one_rank", "fsdp_fp32,0,100", "fsdp_fp32,1,100", "sixteen,fsdp,bfloat16,100",
        "sixteen,fsdp,float16,20", "save_and_load",
    )  # fmt: skip


@needs_two
def test_pairs_saved_beside_training(tmp_path) -> None:
    """async_save makes a gloo group of its own, since DCP writes on another thread."""
    run_ranks("checkpoint_worker.py", 2, tmp_path, "pair", "marker")
