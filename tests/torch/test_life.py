"""Ctrl-C, forks, full disks, and the end of the interpreter."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import millpond
import millpond.torch
import pytest
import torch
from millpond.interrupts import INTERRUPTS
from millpond.torch.hostadam import HostAdam
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
def python_takes_interrupts() -> Iterator[None]:
    """A shell's background job begins with SIGINT ignored."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


def test_an_interrupt_inside_a_callback(scratch, monkeypatch, python_takes_interrupts) -> None:
    """torch itself does the pieces. A KeyboardInterrupt raised there, where C calls Python, would
    be lost, and the piece with it."""
    update, pieces = HostAdam.update, []

    def interrupted(self: HostAdam, piece: object) -> None:
        pieces.append(piece)
        if len(pieces) == 5:
            signal.raise_signal(signal.SIGINT)
        update(self, piece)

    monkeypatch.setattr("millpond.torch.streamed.prove", lambda *_: None)
    monkeypatch.setattr(HostAdam, "update", interrupted)
    mine, theirs = (torch.nn.Parameter(torch.ones(20_000)) for _ in "12")
    tiles = {"tile_elements": 4096, "block_elements": 4096}
    optimizer = millpond.torch.AdamW([mine], scratch=str(scratch), options=tiles)
    resident = torch.optim.AdamW([theirs])
    mine.grad = torch.randn(20_000)
    theirs.grad = mine.grad.clone()
    for step in range(2):
        resident.step()
        if step == 0:
            with pytest.raises(KeyboardInterrupt):
                optimizer.step()
        else:
            optimizer.step()
        assert len(pieces) >= 5 * (step + 1) and differing(mine, theirs) == 0
        assert int(optimizer.state[mine]["step"]) == step + 1


@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupt_while_handlers_change(
    monkeypatch, python_takes_interrupts, call: int, when: str
) -> None:
    """One that arrives inside the first or the second signal.signal, before or after it works: it
    is raised, and later ones are held back as ever."""
    change, calls = signal.signal, []

    def interrupted(number: int, handler: object) -> object:
        calls.append(handler)
        if (call, when) == (len(calls), "before"):
            signal.raise_signal(signal.SIGINT)
        former = change(number, handler)  # type: ignore[arg-type]
        if (call, when) == (len(calls), "after"):
            signal.raise_signal(signal.SIGINT)
        return former

    with monkeypatch.context() as patched:
        patched.setattr(signal, "signal", interrupted)
        with pytest.raises(KeyboardInterrupt), INTERRUPTS.held(1):
            pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    seen = []
    with pytest.raises(KeyboardInterrupt), INTERRUPTS.held(1):
        signal.raise_signal(signal.SIGINT)
        seen.append(INTERRUPTS.cancelled())
    assert seen == [True]


def mounted(place: Path, *commands: list[str]) -> Iterator[Path]:
    """`commands` put a filesystem on the folder `place`."""
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a filesystem needs root")
    for command in commands:
        if shutil.which(command[0]) is None:
            pytest.skip(f"there is no {command[0]} here")
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"'{' '.join(command)}' is not possible here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real filesystem of 64 MiB."""
    place = tmp_path / "small"
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)]
    yield from mounted(place, mount)


@pytest.fixture
def copying_disk(tmp_path: Path) -> Iterator[Path]:
    """btrfs, which never overwrites: space that was reserved takes the first write of a place only,
    so a later one can find the disk full, whatever was reserved at bind."""
    image, place = tmp_path / "image", tmp_path / "copying"
    yield from mounted(
        place,
        ["truncate", "--size=256M", str(image)],
        ["mkfs.btrfs", "-q", str(image)],
        ["mount", "-t", "btrfs", "-o", "loop", str(image), str(place)],
    )


def fill(place: Path) -> Path:
    """Takes all the space that is left; returns the file that holds it."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096):
            block = os.urandom(size)  # nothing for a compressing filesystem
            with pytest.raises(OSError) as full:
                while True:
                    file.write(block)
                    os.fsync(file.fileno())
            assert full.value.errno == errno.ENOSPC
    return filler


def test_a_full_disk_at_bind(small_disk) -> None:
    parameter = torch.nn.Parameter(torch.zeros(20_000_000))
    optimizer = millpond.torch.AdamW([parameter], scratch=str(small_disk), exact="off")
    with pytest.raises(millpond.NoSpaceError) as caught:
        optimizer.bind()
    assert caught.value.wanted and caught.value.got is not None
    assert caught.value.wanted > caught.value.got


def test_a_full_disk_at_save(small_disk, scratch) -> None:
    """The error names the space; training goes on; the checkpoint before is the checkpoint."""
    mine, theirs = (torch.nn.Parameter(torch.zeros(1_000_000)) for _ in "12")
    optimizer = millpond.torch.AdamW([mine], fused=True, scratch=str(scratch))
    resident = torch.optim.AdamW([theirs], fused=True)

    def step(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        mine.grad = torch.randn(1_000_000, generator=generator)
        theirs.grad = mine.grad.clone()
        optimizer.step()
        resident.step()

    step(0)
    optimizer.save(small_disk / "saved")
    step(1)
    filler = fill(small_disk)
    with pytest.raises(millpond.MillpondError) as caught:
        optimizer.save(small_disk / "saved")
    assert caught.value.native == errno.ENOSPC, caught.value
    step(2)
    assert differing(mine, theirs) == 0
    filler.unlink()
    optimizer.load(small_disk / "saved")
    assert int(optimizer.state[mine]["step"]) == 1


def scaled_steps(place: Path, saved: Path, fails: bool) -> torch.Tensor:
    """The parameter after five steps under a GradScaler. `fails`: the fifth meets a full disk; what
    was saved after the third is loaded and the last two are taken again."""
    torch.manual_seed(2)
    parameter = torch.nn.Parameter(torch.randn(2_000_000))
    optimizer = millpond.torch.AdamW(
        [parameter], fused=True, scratch=str(place), exact="off", host_memory_bytes=4 << 20,
        options={"tile_elements": 65536, "block_elements": 65536},
    )  # fmt: skip
    scaler = torch.amp.GradScaler("cpu", init_scale=3000.0)
    scaler.scale(torch.ones(()))

    def take(step: int) -> None:
        generator = torch.Generator().manual_seed(step)
        parameter.grad = torch.randn(2_000_000, generator=generator) * 3000
        try:
            scaler.step(optimizer)
        finally:
            scaler.update()

    for step in range(3):
        take(step)
    optimizer.save(saved)
    weights = parameter.detach().clone()
    take(3)
    if fails:
        filler = fill(place)
        with pytest.raises(millpond.NoSpaceError) as caught:
            take(4)
        assert caught.value.native == errno.ENOSPC and caught.value.poisoned, caught.value
        assert not hasattr(optimizer, "grad_scale") and not hasattr(optimizer, "found_inf")
        filler.unlink()
        with torch.no_grad():
            parameter.copy_(weights)
        optimizer.load(saved)
        take(3)
    take(4)
    optimizer.close()
    assert list(place.iterdir()) == []
    return parameter.detach()


def test_B14_a_full_disk_in_a_step_under_grad_scaler(copying_disk, scratch, tmp_path) -> None:
    """ENOSPC in a step, then load, then step: the bits as without it, and neither grad_scale nor
    found_inf is left behind."""
    wanted = scaled_steps(scratch, tmp_path / "plain", fails=False)
    assert differing(scaled_steps(copying_disk, tmp_path / "saved", fails=True), wanted) == 0


def test_a_cancelled_step_under_grad_scaler(scratch, tmp_path) -> None:
    """The same for a step that was given up, which happens on every machine."""
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
