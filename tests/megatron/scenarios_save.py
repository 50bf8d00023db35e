"""On a rank: saves, resumes, and what must be refused. `case` names how to train, `base` is a
directory that all ranks share."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from pathlib import Path
from typing import Any

import millpond.megatron
import torch.distributed as dist
from cases import CASES
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncCallsQueue
from millpond import CheckpointError, MillpondError, StateError
from saving import RANK, directory, load, options, refused, save, state_of, train
from training import Run


def rates(run: Run, value: float) -> list[float]:
    """Every rank its own learning rates: rank 0's must not reach the others."""
    for number, group in enumerate(run.optimizer.param_groups):
        group["lr"] = value + 0.001 * number + 0.0001 * RANK
    return [group["lr"] for group in run.optimizer.param_groups]


def resumed(case: str, path: Path, reference: Run, lrs: list[float], steps: int) -> None:
    """A new process's worth of everything, other weights first; the same steps as the reference."""
    with millpond.megatron.streamed(**options()) as session:
        run = Run.start(CASES[case], seed=99)
        run.advance(1)
        load(run, path)
        begin = run.step
        assert [group["lr"] for group in run.optimizer.param_groups] == lrs
        for member in session.members():
            assert member.steps == begin, (member.uid, member.steps)
            assert {member.store.counter(i) for i in range(len(member.shards))} <= {begin}
        run.advance(steps)
        assert run.digests[1:] == reference.digests[begin : begin + steps], "other bits"
        assert run.norms[1:] == reference.norms[begin : begin + steps]


def sync(case: str, base: Path) -> None:
    path = directory(base, f"sync_{case}")
    with millpond.megatron.streamed(**options()) as session:
        run = train(case, 5)
        lrs = rates(run, 0.01)
        save(run, path)
        run.advance(3)
        uids = [member.uid for member in session.members()]
    saves = list((path / "nvme_opt_state").iterdir())
    assert len(saves) == 1 and (saves[0] / "COMMIT.json").is_file(), saves
    for uid in uids:
        assert (saves[0] / uid / "manifest.json").is_file(), uid
    if CASES[case].experts:
        assert len(uids) == 2, "experts have an optimizer of their own"
    resumed(case, path, run, lrs, 3)


def cold(case: str, base: Path) -> None:
    """B29: a load of the weights alone goes on differently from the resumed run."""
    path = base / f"sync_{case}"
    wanted = []
    for with_state in (True, False):
        with millpond.megatron.streamed(**options()):
            run = Run.start(CASES[case], seed=99)
            if with_state:
                load(run, path)
            else:  # as --no-load-optim does
                state = {"model": run.chunks[0].module.sharded_state_dict()}
                loaded = dist_checkpointing.load(state, str(path))
                run.chunks[0].module.load_state_dict(loaded["model"])
                run.optimizer.reload_model_params()
                run.step = 5
            for group in run.optimizer.param_groups:
                group["lr"] = 0.0  # B30: nothing but rounding of mains could move a parameter
            before = run.digest()
            run.advance(1)
            assert run.digests[-1] == before, "a step with lr 0 moved the loaded parameters"
            for group in run.optimizer.param_groups:
                group["lr"] = 0.01
            run.advance(2)
            wanted.append(run.digests[-1])
    assert wanted[0] != wanted[1], "the moments were not loaded"


def background(case: str, base: Path) -> None:
    path, tracker = directory(base, "async"), base / "tracker"
    with millpond.megatron.streamed(**options()):
        run = train(case, 5)
        lrs = [group["lr"] for group in run.optimizer.param_groups]
        queue = AsyncCallsQueue()
        request = save(run, path, async_sharded_save=True)
        assert not list((path / "nvme_opt_state").glob("*/COMMIT.json"))
        request.add_finalize_fn(lambda: RANK or tracker.write_text("5"))
        queue.schedule_async_request(request)
        run.advance(3)
        queue.maybe_finalize_async_calls(blocking=True)
        queue.close()
    dist.barrier()
    assert tracker.read_text() == "5"
    resumed(case, path, run, lrs, 3)


def commit_fails(case: str, base: Path) -> None:
    """Rank 1 cannot write its part: its commit fails in the finalizer of an asynchronous save, both
    ranks raise there, and no rank goes on to the tracker."""
    path, tracker = directory(base, "failing"), base / "tracker_failing"
    if RANK == 0:
        tracker.write_text("1")
    dist.barrier()
    with millpond.megatron.streamed(**options()) as session:
        run = train(case, 2)
        write = session.checkpoints._write
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)

        def without_space(*args: Any) -> Any:
            if RANK == 1:
                resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
            try:
                return write(*args)
            finally:
                for member in session.members():
                    try:
                        member.store.wait()
                    except MillpondError:
                        assert RANK == 1
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)

        session.checkpoints._write = without_space
        queue = AsyncCallsQueue()
        request = save(run, path, async_sharded_save=True)
        request.add_finalize_fn(lambda: tracker.write_text("2"))
        queue.schedule_async_request(request)
        words = "" if RANK == 1 else "rank 1"
        refused(MillpondError, words, lambda: queue.maybe_finalize_async_calls(blocking=True))
        queue.close()
        dist.barrier()
        assert tracker.read_text() == "1"
        assert not list(path.glob("nvme_opt_state/*/COMMIT.json"))
        session.checkpoints._write = write
        run.advance(1)  # a failed save leaves training as it was
        save(run, directory(base, "after_failing"))


def refusals(case: str, base: Path) -> None:
    """Checkpoints without streamed state, without a commit, and saves past the hooks."""
    resident = train(case, 2)
    old = directory(base, "resident")
    with millpond.megatron.streamed(**options()):
        run = train(case, 2)
        good = directory(base, "good")
        save(run, good)
    dist_checkpointing.save({"model": resident.chunks[0].module.sharded_state_dict()}, str(old))
    cut = base / "cut"
    if RANK == 0:
        shutil.copytree(good, cut)
        next(cut.glob("nvme_opt_state/*/COMMIT.json")).unlink()
    dist.barrier()
    with millpond.megatron.streamed(**options()):
        run = train(case, 1)
        for strict in ("assume_ok_unexpected", "log_all", "ignore_all", "return_all"):
            refused(CheckpointError, "has no streamed optimizer state",
                    lambda strict=strict: load(run, old, strict=strict))  # fmt: skip
        refused(StateError, "was not called with it", lambda: run.advance(1))
    with millpond.megatron.streamed(**options()) as session:
        run = train(case, 1)
        before = [member.store.counter(0) for member in session.members()]
        refused(MillpondError, "COMMIT", lambda: load(run, cut))
        assert [member.store.counter(0) for member in session.members()] == before
        load(run, good, strict="log_all")
        state_of(run)
        refused(StateError, "was not called with it", lambda: run.advance(1))
    with millpond.megatron.streamed(**options()):
        run = train(case, 1)
        dist_checkpointing.load(state_of(run, True), str(good))
        refused(StateError, "load_state_dict", lambda: run.advance(1))
        refused(MillpondError, "--ckpt-format torch_dist",
                lambda: run.optimizer.save_parameter_state(str(base / "legacy")))  # fmt: skip
    from_before(case, old)


def from_before(case: str, old: Path) -> None:
    """A checkpoint from before streaming, with the policy that begins anew: the mains are the
    loaded parameters, the steps 0, and the moments of earlier steps are gone."""
    digests = []
    for steps in (0, 1):
        policy = options(without_state="init_from_model")
        with millpond.megatron.streamed(**policy) as session:
            run = Run.start(CASES[case], seed=99)
            run.advance(steps)
            state = {k: value for k, value in state_of(run, True).items() if k != "iteration"}
            loaded = dist_checkpointing.load(state, str(old))
            run.chunks[0].module.load_state_dict(loaded["model"])
            run.optimizer.load_state_dict(loaded["optimizer"])
            for member in session.members():
                assert member.steps == 0
                assert {member.store.counter(i) for i in range(len(member.shards))} == {0}
            run.step = 2
            run.advance(2)
            digests.append(run.digests[-1])
    assert digests[0] == digests[1], "something of before the load was left"


def killed(case: str, base: Path) -> None:
    """Rank 1 is killed between its writing and the commit of the second save. Never returns on it;
    rank 0 ends with an error."""
    tracker = base / "killed_tracker"
    session = millpond.megatron.enable(**options())
    run = train(case, 5)
    save(run, directory(base, "killed_5"))
    if RANK == 0:
        tracker.write_text("killed_5")
    run.advance(2)
    (base / f"killed_figures_{RANK}").write_text(json.dumps([run.digests, run.norms]))
    commit = session.checkpoints._commit

    def dies(*args: Any) -> None:
        for member in session.members():
            member.store.wait()
        if RANK == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        commit(*args)

    session.checkpoints._commit = dies
    save(run, directory(base, "killed_7"))
    tracker.write_text("killed_7")


def after_kill(case: str, base: Path) -> None:
    """The next job: the tracker names the older checkpoint, the newer one does not count, and the
    steps are those of the run that was killed."""
    newest = (base / "killed_tracker").read_text()
    assert newest == "killed_5"
    assert list(base.glob("killed_7/nvme_opt_state/*")), "the second save had begun"
    assert not list(base.glob("killed_7/nvme_opt_state/*/COMMIT.json"))
    digests, norms = json.loads((base / f"killed_figures_{RANK}").read_text())
    with millpond.megatron.streamed(**options()):
        run = Run.start(CASES[case], seed=99)
        refused(MillpondError, "COMMIT", lambda: load(run, base / "killed_7"))
    with millpond.megatron.streamed(**options()):
        run = Run.start(CASES[case], seed=99)
        load(run, base / newest)
        run.advance(2)
        assert run.digests == digests[5:7] and run.norms == norms[5:7]
