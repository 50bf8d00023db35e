"""On a rank: checkpoints of streamed state through Megatron's own dist_checkpointing.

python run_checkpoint.py DIRECTORY CASE SCENARIO...
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import job

RANK = int(os.environ["RANK"])  # Megatron's writers import this file again: nothing else here

import millpond.megatron  # noqa: E402
import torch.distributed as dist  # noqa: E402
from cases import CASES  # noqa: E402
from megatron.core import dist_checkpointing  # noqa: E402
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncCallsQueue  # noqa: E402
from millpond import CheckpointError, MillpondError, StateError  # noqa: E402
from training import Run  # noqa: E402

METADATA = {"distrib_optim_sharding_type": "dp_reshardable"}
SCRATCH = tempfile.mkdtemp() if __name__ == "__main__" else ""
OPTIONS = dict(scratch=SCRATCH, host_memory_bytes=64 << 20, log_level="error")


def state_of(run: Run, loading: bool = False) -> dict[str, Any]:
    model = run.chunks[0].module.sharded_state_dict()
    optimizer = run.optimizer.sharded_state_dict(model, is_loading=loading, metadata=METADATA)
    return {"model": model, "optimizer": optimizer, "iteration": run.step}


def directory(base: Path, name: str) -> Path:
    path = base / name
    if RANK == 0:
        path.mkdir()
    dist.barrier()
    return path


def save(run: Run, path: Path, **kwargs: Any) -> Any:
    return dist_checkpointing.save(state_of(run), str(path), **kwargs)


def load(run: Run, path: Path, **kwargs: Any) -> None:
    loaded = dist_checkpointing.load(state_of(run, True), str(path), **kwargs)
    loaded = loaded[0] if isinstance(loaded, tuple) else loaded
    run.chunks[0].module.load_state_dict(loaded["model"])
    run.optimizer.load_state_dict(loaded["optimizer"])
    run.step = loaded["iteration"]


def refused(kind: type[Exception], words: str, call: Any) -> str:
    """That `call` raises on this rank, with these words."""
    try:
        call()
    except kind as error:
        assert words in str(error), (words, str(error))
        return str(error)
    raise AssertionError(f"nothing was raised; wanted {kind.__name__}: {words}")


def train(case: str, steps: int, seed: int = 7) -> Run:
    run = Run.start(CASES[case], seed)
    run.advance(steps)
    return run


def rates(run: Run, value: float) -> None:
    """Every rank its own learning rates: rank 0's must not reach the others."""
    for number, group in enumerate(run.optimizer.param_groups):
        group["lr"] = value + 0.001 * number + 0.0001 * RANK


def resumed(case: str, path: Path, reference: Run, steps: int) -> None:
    """A new process's worth of everything, other weights first; the same steps as the reference."""
    with millpond.megatron.streamed(**OPTIONS):
        run = Run.start(CASES[case], seed=99)
        run.advance(1)
        load(run, path)
        begin = run.step
        assert [g["lr"] for g in run.optimizer.param_groups] == reference.rates_saved
        run.advance(steps)
        assert run.digests[1:] == reference.digests[begin : begin + steps], (
            "other bits after a load"
        )
        assert run.norms[1:] == reference.norms[begin : begin + steps]


def sync(case: str, base: Path) -> None:
    path = directory(base, "sync")
    with millpond.megatron.streamed(**OPTIONS):
        run = train(case, 5)
        rates(run, 0.01)
        run.rates_saved = [g["lr"] for g in run.optimizer.param_groups]
        save(run, path)
        run.advance(3)
    saves = list((path / "nvme_opt_state").iterdir())
    assert len(saves) == 1 and (saves[0] / "COMMIT.json").is_file(), saves
    resumed(case, path, run, 3)


def background(case: str, base: Path) -> None:
    path = directory(base, "async")
    tracker = base / "tracker"
    with millpond.megatron.streamed(**OPTIONS):
        run = train(case, 5)
        run.rates_saved = [g["lr"] for g in run.optimizer.param_groups]
        queue = AsyncCallsQueue()
        request = save(run, path, async_sharded_save=True)
        assert not list((path / "nvme_opt_state").glob("*/COMMIT.json"))
        request.add_finalize_fn(lambda: RANK or tracker.write_text("5"))
        queue.schedule_async_request(request)
        run.advance(3)
        queue.maybe_finalize_async_calls(blocking=True)
        queue.close()
    assert tracker.read_text() == "5"
    resumed(case, path, run, 3)


def commit_fails(case: str, base: Path) -> None:
    """Rank 1 cannot write its part: no rank goes on to the tracker."""
    path, tracker = directory(base, "failing"), base / "tracker_failing"
    with millpond.megatron.streamed(**OPTIONS) as session:
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
        request = save(run, path, async_sharded_save=True)
        request.add_finalize_fn(lambda: tracker.write_text("2"))
        words = "" if RANK == 1 else "rank 1"
        refused(MillpondError, words, request.execute_sync)
        dist.barrier()
        assert not tracker.exists()
        assert not list(path.glob("nvme_opt_state/*/COMMIT.json"))
        session.checkpoints._write = write
        run.advance(1)  # a failed save leaves training as it was
        save(run, directory(base, "after_failing"))


def refusals(case: str, base: Path) -> None:
    """Checkpoints without streamed state, without a commit, and saves past the hooks."""
    resident = train(case, 2)
    old = directory(base, "resident")
    with millpond.megatron.streamed(**OPTIONS):
        run = train(case, 2)
        good = directory(base, "good")
        save(run, good)
    dist_checkpointing.save({"model": resident.chunks[0].module.sharded_state_dict()}, str(old))
    cut = base / "cut"
    if RANK == 0:
        shutil.copytree(good, cut)
        next(cut.glob("nvme_opt_state/*/COMMIT.json")).unlink()
    dist.barrier()
    with millpond.megatron.streamed(**OPTIONS):
        run = train(case, 1)
        for strict in ("assume_ok_unexpected", "log_all", "ignore_all", "return_all"):
            refused(CheckpointError, "has no streamed optimizer state",
                    lambda strict=strict: load(run, old, strict=strict))  # fmt: skip
        refused(StateError, "was not called with it", lambda: run.advance(1))
    with millpond.megatron.streamed(**OPTIONS) as session:
        run = train(case, 1)
        before = [member.store.counter(0) for member in session.members()]
        refused(MillpondError, "COMMIT", lambda: load(run, cut))
        assert [member.store.counter(0) for member in session.members()] == before
        load(run, good)
        state_of(run)
        refused(StateError, "was not called with it", lambda: run.advance(1))
    with millpond.megatron.streamed(**OPTIONS):
        run = train(case, 1)
        dist_checkpointing.load(state_of(run, True), str(good))
        refused(StateError, "load_state_dict", lambda: run.advance(1))
    with millpond.megatron.streamed(**OPTIONS, without_state="init_from_model") as session:
        run = Run.start(CASES[case], seed=99)
        run.advance(1)
        state = {key: value for key, value in state_of(run, True).items() if key != "iteration"}
        loaded = dist_checkpointing.load(state, str(old))
        run.chunks[0].module.load_state_dict(loaded["model"])
        run.optimizer.load_state_dict(loaded["optimizer"])
        assert [member.steps for member in session.members()] == [0] * len(session.members())
        run.advance(1)


SCENARIOS = {
    "sync": sync, "background": background, "commit_fails": commit_fails, "refusals": refusals
}  # fmt: skip


def main(where: str, name: str, *wanted: str) -> None:
    job.start()
    job.lay_out(CASES[name].tp, CASES[name].ep)
    for scenario in wanted:
        SCENARIOS[scenario](name, Path(where))
        dist.barrier()
        if RANK == 0:
            print(f"{scenario}: good", flush=True)
    shutil.rmtree(SCRATCH)


if __name__ == "__main__":
    main(*sys.argv[1:])
