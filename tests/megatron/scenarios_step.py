"""On a rank: steps that are refused, phases, figures, and an inner optimizer that counts in its
groups. The oracle is Megatron's resident run."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import megatron.core.optimizer as megatron_optimizer
import millpond.megatron
import torch
import torch.distributed as dist
from cases import CASES
from fused_adam import FusedAdam
from megatron.core.optimizer import distrib_optimizer
from megatron.core.timers import Timers
from millpond import MillpondError, StateError
from saving import RANK, directory, load, options, refused, save, train
from training import Run


def refused_beforehand(case: str, base: Path) -> None:
    """What one rank refuses before anything was applied is raised on every rank, and no store is
    the worse for it. The parameter buffer's ranges are looked at in every step."""
    resident = train(case, 5)
    with millpond.megatron.streamed(**options()) as session:
        run = train(case, 2)
        if RANK == 1:  # a state dict that is not saved
            run.optimizer.sharded_state_dict({})
        refused(MillpondError, "was not called with it", lambda: run.advance(1))
        dist.barrier()
        save(run, directory(base, "beforehand"))
        run.advance(1)
        bucket = run.chunks[0].buffers[0].buckets[0]
        whole = bucket.param_data
        emptied = torch.empty_like(whole)
        emptied.untyped_storage().resize_(0)
        cut = whole[: whole.numel() // 2 + 8]
        for taken, words in (
            (emptied, "took the buffer away"),
            (cut, "the parameter buffer's range"),
        ):
            run.gradients()
            if RANK == 1:  # a memory saver, or a buffer of another size
                bucket.param_data = taken
            told = refused(MillpondError, words, run.optimizer.step)
            assert "Nothing was changed" in told and (RANK == 1 or "rank 1" in told), told
            bucket.param_data = whole
        (group, *_) = session.members()[0].inner.param_groups
        for name, value in (("lr", float("nan")), ("betas", (0.9, 1.0)), ("eps", -1.0)):
            kept = group[name]
            run.gradients()
            if RANK == 1:  # what the plugin itself refuses
                group[name] = value
            told = refused(MillpondError, name.removesuffix("s"), run.optimizer.step)
            assert "Nothing was changed" in told and (RANK == 1 or "rank 1" in told), told
            group[name] = kept
        run.advance(2)
        assert run.digests == resident.digests and run.norms == resident.norms


def phases(case: str, base: Path) -> None:
    """Memory is given back between steps, a step meanwhile is refused, nothing is lost. The
    session is the object that a memory saver's pause and resume are given to."""
    resident = train(case, 4)
    with millpond.megatron.streamed(**options()) as session:
        run = train(case, 2)
        assert session.runtime.figures().host_bytes > 0
        session.pause("optimizer")
        assert session.runtime.figures().host_bytes == 0
        refused(StateError, "resume", lambda: run.advance(1))
        session.resume("optimizer")
        run.advance(1)
        millpond.megatron.suspend()
        millpond.megatron.suspend(host_tier=True)
        save(run, directory(base, "suspended"))  # a save may be made meanwhile
        millpond.megatron.resume()
        run.advance(1)
        assert run.digests == resident.digests
    assert list((base / "suspended").glob("nvme_opt_state/*/COMMIT.json"))


class Kept(logging.Handler):
    """The lines of a logger."""

    def __init__(self, name: str):
        super().__init__()
        self.lines: list[str] = []
        self._logger = logging.getLogger(name)
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def stop(self) -> list[str]:
        self._logger.removeHandler(self)
        return self.lines


def figures(case: str, base: Path) -> None:
    """One line a step and rank, the first says that it read mains only; Megatron's own timers have
    the seconds and print them beside its inner step."""
    timers = Timers(1, "max")
    ours, plugins, printed = (
        Kept(name) for name in ("millpond.megatron", "millpond", "megatron.core.timers")
    )
    original = timers.log
    with millpond.megatron.streamed(**options(log_level="info")) as session:
        run = Run.start(CASES[case], timers=timers)
        expected = 0.0
        for _ in range(3):
            run.advance(1)
            expected += sum(member.store.last_step().seconds for member in session.members())
        written = sum(member.store.last_step().bytes_written for member in session.members())
        spent = timers("streamed-optimizer-step").elapsed(reset=False)
        assert spent > 0 and abs(spent - expected) < 1e-9, (spent, expected)
        timers.log(["forward-backward", "optimizer-inner-step"], normalizer=3)
        assert timers("streamed-optimizer-step").elapsed(reset=False) == 0, "not printed and reset"
        timers.log(["forward-backward"])
        run.advance(1)
    lines = [line for line in ours.stop() if line.startswith("streamed step")]
    assert len(lines) == 4, lines
    assert f"streamed step 1 of rank {RANK}: " in lines[0] and "mains only" in lines[0]
    assert all("mains only" not in line for line in lines[1:])
    assert f"written {written / 1e6:.1f} MB" in lines[2], (written, lines[2])
    assert not [line for line in plugins.stop() if line.startswith("step ")], "a second line"
    seen = "\n".join(printed.stop())
    if dist.get_world_size() - 1 == RANK and seen:  # 0.13 and older print instead
        assert seen.count("streamed-optimizer-step") == 1, seen
    assert timers.log == original, "our wrapper is left"


@contextlib.contextmanager
def inner(kind: Any) -> Iterator[None]:
    """Megatron builds `kind` where it would build Transformer Engine's or apex's."""
    replaced = (
        (megatron_optimizer, "Adam", kind),
        (megatron_optimizer, "USING_PYTORCH_OPTIMIZER", False),
        (distrib_optimizer, "Adam", kind),
    )
    known = [(module, name, value) for module, name, value in replaced if hasattr(module, name)]
    before = [getattr(module, name) for module, name, _ in known]
    for module, name, value in known:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(known, before, strict=True):
            setattr(module, name, value)


def groups_in(loaded: Any) -> Iterator[dict[str, Any]]:
    """Every parameter group of a loaded state dict."""
    if isinstance(loaded, dict):
        yield from loaded.get("param_groups", [])
        for value in loaded.values():
            yield from groups_in(value)


def counted_in_groups(_case: str, base: Path) -> None:
    """R01: five steps with one skipped between them and a group that is empty on rank 1: every
    saved group says 5, and step 6 has the bits of the resident and of the uninterrupted run."""
    case = CASES["net_fused"]
    path = directory(base, "fused")
    with inner(FusedAdam):
        resident = Run.start(case)
        resident.advance(8)
        assert resident.taken[2] is False and sum(resident.taken) == 7
        with millpond.megatron.streamed(**options()) as session:
            run = Run.start(case)
            (member,) = session.members()
            assert type(member.inner) is FusedAdam and member.arithmetic == "host/1"
            empty = [not group["params"] for group in member.inner.param_groups]
            assert any(empty) == (RANK == 1), "the case has no empty group"
            run.advance(6)
            assert [group["step"] for group in member.inner.param_groups] == [5, 5]
            save(run, path)
            run.advance(2)
            assert run.digests == resident.digests and run.norms == resident.norms
        with millpond.megatron.streamed(**options()) as session:
            again = Run.start(case, seed=99)
            again.advance(1)
            loaded = load(again, path)
            steps = [group["step"] for group in groups_in(loaded["optimizer"])]
            assert steps == [5, 5], steps
            (member,) = session.members()
            assert [group["step"] for group in member.inner.param_groups] == [5, 5]
            again.advance(2)
            assert again.digests[1:] == resident.digests[6:8]
            assert [group["step"] for group in member.inner.param_groups] == [7, 7]
