"""examples/torch_train.py in each of its modes: the models stay the same, bit for bit."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from processes import run_limited
from test_ranks import needs_fsdp2

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--steps", "3", "--width", "32", "--layers", "1", "--context", "16", "--batch", "2"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
MODES = {
    "single": ([], []),
    "ddp": (TORCHRUN, ["--ddp"]),
    "fsdp": (TORCHRUN, ["--fsdp", "--fused"]),
}


# The campaign runs all: starting torch in two processes takes most of a mode's time.
USUAL = ["single", pytest.param("fsdp", marks=needs_fsdp2)]


@pytest.mark.parametrize("mode", [*USUAL, "ddp"] if os.environ.get("MILLPOND_CAMPAIGN") else USUAL)
def test_compare(scratch, mode: str) -> None:
    launcher, flags = MODES[mode]
    command = [
        sys.executable, *launcher, str(ROOT / "examples" / "torch_train.py"), "--compare",
        "--text", str(ROOT / "README.md"), "--scratch", str(scratch), *SMALL, *flags,
    ]  # fmt: skip
    (done,) = run_limited([command], [{"OMP_NUM_THREADS": "1"}])
    assert done.returncode == 0, done.stdout
    for words in ("nats a byte", "streamed step", "saved", "bit for bit, after every step"):
        assert words in done.stdout, done.stdout
    assert list(scratch.iterdir()) == []
