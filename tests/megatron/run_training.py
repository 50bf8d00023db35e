"""On a rank: each case resident, then streamed; every figure and the state itself must be equal.

python run_training.py STEPS CASE,CASE...
"""

from __future__ import annotations

import sys
import tempfile
import time
from typing import Any

import job

RANK = job.start()

import millpond.megatron  # noqa: E402
import torch  # noqa: E402
from cases import CASES  # noqa: E402
from training import Run, members  # noqa: E402


def compare(name: str, steps: int) -> None:
    case = CASES[name]
    job.lay_out(case.tp, case.ep, case.etp)
    began = time.monotonic()
    resident = Run.start(case)
    with tempfile.TemporaryDirectory() as scratch:
        options = dict(scratch=scratch, host_memory_bytes=64 << 20, log_level="error")
        with millpond.megatron.streamed(**options) as session:
            streamed = Run.start(case)
            check_case(case, streamed, session)
            built = handles_of(session)
            for _ in range(steps):
                resident.advance()
                streamed.advance()
                assert handles_of(session) == built, "a handle is another object"
            for key, wanted in resident.figures().items():
                assert wanted == streamed.figures()[key], (
                    name,
                    key,
                    wanted,
                    streamed.figures()[key],
                )
            values = same_state(resident, session)
    if RANK == 0:
        taken = sum(resident.taken)
        loss = float.fromhex(resident.losses[-1])
        spent = time.monotonic() - began
        print(
            f"{name}: {steps} steps ({taken} taken), {values} values equal, loss {loss:.4f}, "
            f"{spent:.1f} s",
            flush=True,
        )
    if case.inf_at is not None:
        assert resident.taken[case.inf_at] is False, resident.taken


def check_case(case: Any, run: Run, session: millpond.megatron.Session) -> None:
    """That the case is what its name says."""
    shards = [shard for member in session.members() for shard in member.shards]
    if case.padding and RANK == 1:
        assert sum(shard.main.numel() for shard in shards) == 0, "this rank owns values"
    if case.native_fp32:
        assert any(shard.native_fp32 for shard in shards) or RANK == 1, "no native fp32 parameter"
    if case.overlap:
        for chunk in run.chunks:
            assert sum(len(buffer.buckets) for buffer in chunk.buffers) > 1, "one bucket"
    assert len(run.chunks) == case.chunks
    if case.experts:
        assert len(session.members()) == 2, "experts have no optimizer of their own"


def handles_of(session: millpond.megatron.Session) -> list[int]:
    """Identities of the mains: those that Megatron and the inner optimizer hold, without memory."""
    found = []
    for member in session.members():
        mains = [m for group in member.optimizer.shard_fp32_from_float16_groups for m in group]
        own = [shard for shard in member.shards if not shard.native_fp32]
        inner = {id(p) for group in member.inner.param_groups for p in group["params"]}
        for main, shard in zip(mains, own, strict=True):
            assert main is shard.main and id(main) in inner, shard.key
            assert main.untyped_storage().nbytes() == 0, shard.key
            assert (main.dtype, main.shape) == (torch.float32, shard.model.shape), shard.key
        found += [id(main) for main in mains]
    return found


def same_state(resident: Run, session: millpond.megatron.Session) -> int:
    """Mains, moments and counters, bit by bit. Returns the values compared."""
    values = 0
    theirs = members(resident.optimizer)
    ours = session.members()
    assert len(theirs) == len(ours)
    for their, our in zip(theirs, ours, strict=True):
        state, number = their.optimizer.state, 0
        for group, (mains, singles) in enumerate(
            zip(their.shard_fp32_from_float16_groups, their.shard_fp32_groups, strict=True)
        ):
            for main, native in [(m, False) for m in mains] + [(m, True) for m in singles]:
                shard = our.shards[number]
                assert shard.group == group
                wanted = {1: state[main]["exp_avg"], 2: state[main]["exp_avg_sq"]}
                if not native:
                    wanted[0] = main
                for segment, tensor in wanted.items():
                    got = torch.empty(tensor.numel())
                    our.store.read(number, segment, 0, tensor.numel(), got.data_ptr())
                    assert torch.equal(got.view(torch.int32), tensor.detach().view(torch.int32)), (
                        shard.key,
                        segment,
                    )
                    values += tensor.numel()
                assert our.store.counter(number) == int(state[main]["step"])
                number += 1
        assert number == len(our.shards)
    return values


for wanted in sys.argv[2].split(","):
    compare(wanted, int(sys.argv[1]))
