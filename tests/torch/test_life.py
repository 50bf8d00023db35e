"""Ctrl-C, forks, full disks, and the end of the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import millpond
import millpond.torch
import pytest
import torch
from processes import run_limited
from twins import differing


def run(case: str, scratch: Path) -> subprocess.CompletedProcess[str]:
    worker = str(Path(__file__).parent / "life_worker.py")
    return run_limited([[sys.executable, worker, case, str(scratch)]], [{}])[0]


@pytest.mark.parametrize("case", ["interrupts", "second_interrupt", "fork", "left_alone"])
def test_processes(scratch, case: str) -> None:
    done = run(case, scratch)
    assert done.returncode == 0 and "whole" in done.stdout, done.stdout
    assert list(scratch.iterdir()) == []


def test_an_exception_ends_the_process_cleanly(scratch) -> None:
    done = run("raises", scratch)
    assert done.returncode == 1 and "LookupError: the batch is gone" in done.stdout, done.stdout
    assert list(scratch.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real filesystem of 64 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small filesystem needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_at_bind(small_disk) -> None:
    parameter = torch.nn.Parameter(torch.zeros(20_000_000))
    optimizer = millpond.torch.AdamW([parameter], scratch=str(small_disk), exact="off")
    with pytest.raises(millpond.NoSpaceError) as caught:
        optimizer.bind()
    assert caught.value.wanted and caught.value.got is not None
    assert caught.value.wanted > caught.value.got


def test_a_failed_step_under_grad_scaler(scratch, tmp_path) -> None:
    """A step that fails, then load, then step: the bits as without the failure, and neither
    grad_scale nor found_inf is left behind."""
    pairs = []
    for fails in (False, True):
        torch.manual_seed(2)
        parameter = torch.nn.Parameter(torch.randn(5000))
        optimizer = millpond.torch.AdamW([parameter], fused=True, scratch=str(scratch), exact="off")
        scaler = torch.amp.GradScaler("cpu", init_scale=3000.0)
        scaler.scale(torch.ones(()))
        for step in range(3):
            gradient = torch.randn(5000, generator=torch.Generator().manual_seed(step)) * 3000
            parameter.grad = gradient.clone()
            if fails and step == 2:
                optimizer.save(tmp_path / "saved")
                weights = parameter.detach().clone()
                optimizer._streamed.store.runtime.callbacks.progress = lambda *_: True
                with pytest.raises(millpond.CancelledError):
                    scaler.step(optimizer)
                optimizer._streamed.store.runtime.callbacks.progress = None
                assert not hasattr(optimizer, "grad_scale")
                assert not hasattr(optimizer, "found_inf")
                scaler.update()
                with torch.no_grad():
                    parameter.copy_(weights)
                optimizer.load(tmp_path / "saved")
                parameter.grad = gradient.clone()
            scaler.step(optimizer)
            scaler.update()
        pairs.append(parameter.detach().clone())
    assert differing(*pairs) == 0


def test_used_after_close(scratch) -> None:
    parameter = torch.nn.Parameter(torch.zeros(10))
    optimizer = millpond.torch.AdamW([parameter], scratch=str(scratch), exact="off")
    optimizer.step()
    optimizer.close()
    with pytest.raises(millpond.StateError, match="closed"):
        optimizer.step()
