"""DDP, FSDP2 and checkpoints on two CUDA devices, in a process group that has nccl and no gloo."""

from __future__ import annotations

import pytest
import torch
from processes import run_ranks

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.device_count() < 2,
    reason="there are no two CUDA devices here",
)


@pytest.fixture(autouse=True)
def on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLPOND_TEST_DEVICE", "cuda")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def test_ddp_and_fsdp2(tmp_path) -> None:
    run_ranks(
        "ranks_worker.py", 2, tmp_path,
        "ddp,0,0,100", "ddp,1,1,100", "ddp_bf16", "a_failure_on_one_rank", "fsdp_fp32,0,100",
        "fsdp_fp32,1,100", "fsdp_bf16,100", "save_and_load",
    )  # fmt: skip


def test_pairs_saved_beside_training(tmp_path) -> None:
    """async_save makes a gloo group of its own, since DCP writes on another thread."""
    run_ranks("checkpoint_worker.py", 2, tmp_path, "pair", "marker")
