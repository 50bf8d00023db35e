"""examples/megatron_train.py under torchrun: compared byte by byte, and killed and resumed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import ranks
from test_training import NEWEST, need

EXAMPLE = ranks.ROOT / "examples" / "megatron_train.py"


def torchrun(tmp_path: Path, *more: str, size: int = 2) -> subprocess.CompletedProcess[str]:
    need(NEWEST)
    scratch, text = tmp_path / "scratch", tmp_path / "text"
    scratch.mkdir(exist_ok=True)
    if not text.exists():  # the same for all runs of a test, whoever edits the file meanwhile
        shutil.copy(ranks.ROOT / "README.md", text)
    small = ["--width", "32", "--context", "16", "--batch", "2", "--steps", "8"]
    command = (
        [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone",
         "--nproc-per-node", str(size), str(EXAMPLE), "--text", str(text), "--scratch",
         str(scratch), *small, *more]
    )  # fmt: skip
    # Into a file: a killed rank's writer processes may hold its output open.
    with (tmp_path / "output").open("w+") as output:
        done = subprocess.run(
            command, env=ranks.environment(NEWEST), cwd=tmp_path, stdout=output,
            stderr=subprocess.STDOUT, timeout=300, process_group=0,
        )  # fmt: skip
        output.seek(0)
        return subprocess.CompletedProcess(command, done.returncode, output.read())


def digest(run: subprocess.CompletedProcess[str]) -> str:
    assert run.returncode == 0, run.stdout[-6000:]
    found = re.search(r"^parameters (\w{16})$", run.stdout, re.M)
    assert found, run.stdout[-6000:]
    return found[1]


def test_a_killed_run_resumes_to_the_bytes_of_one_that_was_not(tmp_path: Path) -> None:
    saved = ["--save", str(tmp_path / "checkpoints"), "--save-every", "3"]
    killed = torchrun(tmp_path, *saved, "--kill-at", "5")
    assert killed.returncode != 0
    dead = re.findall(rf"exitcode  : -{int(signal.SIGKILL)} \(pid: (\d+)\)", killed.stdout)
    assert dead, killed.stdout[-6000:]
    for rank in dead:  # Megatron's checkpoint writer outlives a rank that was killed
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(rank), signal.SIGKILL)
    resumed = torchrun(tmp_path, *saved, "--resume")
    assert "goes on after step 3" in resumed.stdout
    compared = torchrun(tmp_path, "--compare")
    assert "the same, bit for bit" in compared.stdout
    assert digest(resumed) == digest(compared)
