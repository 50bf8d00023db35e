"""On a rank: a checkpoint of the Python store that Millpond replaces comes in. It was written by
that store itself (tests/files/reference); the values wanted are those of a resident run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import millpond.megatron
import numpy
import torch
import torch.distributed as dist
from cases import CASES
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing import ShardedTensor
from megatron.core.transformer.module import MegatronModule
from millpond import CheckpointError, StateError
from saving import RANK, directory, options, refused, same, segments_of
from training import Run

REFERENCE = Path(__file__).resolve().parents[1] / "files" / "reference"
SIZES = (("embed", 17, 13), ("mix", 16, 17), ("up", 64, 16), ("sq", 31, 64), ("down", 17, 31),
         ("g2", 7, 17), ("b2", 17, 7), ("head", 5, 17))  # fmt: skip
SCALE = slice(2207, 2212)  # of rank 0's expected values: the native fp32 parameter `scale`


class Net(MegatronModule):
    """The model of the reference checkpoint, in its order of registration."""

    def __init__(self, config: Any):
        super().__init__(config)
        for name, out, into in SIZES:
            setattr(self, name, torch.nn.Linear(into, out))
        self.scale = torch.nn.Parameter(torch.ones(5))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        for name, _, _ in SIZES:
            values = torch.tanh(getattr(self, name)(values))
        return (values.float() * self.scale).pow(2).mean()

    def set_input_tensor(self, _tensor: Any) -> None:
        return None


def net(_case: Any, config: Any) -> Net:
    made = Net(config).bfloat16()
    made.scale.data = made.scale.data.float()
    return made


def rest() -> dict[str, Any]:
    """What such a checkpoint has beside the optimizer."""
    value = ShardedTensor.from_rank_offsets("weights", torch.ones(2), replica_id=RANK)
    return {"iteration": 3, "weights": value}


def expected() -> dict[tuple[str, int], dict[str, torch.Tensor]]:
    """By parameter and first element, this rank's values of every segment."""
    uid = f"rank{RANK:05d}/opt0_0"
    arrays = {
        segment: torch.from_numpy(numpy.load(REFERENCE / "expected" / uid / f"{segment}.npy"))
        for segment in ("main", "exp_avg", "exp_avg_sq")
    }
    found = {}
    for one in json.loads((REFERENCE / "expected.json").read_text()):
        if one["optimizer"] == uid:
            run = slice(one["at"], one["at"] + one["end"] - one["begin"])
            found[one["name"], one["begin"]] = {name: a[run] for name, a in arrays.items()}
    if RANK == 0:
        moments = {name: a[SCALE] for name, a in arrays.items() if name != "main"}
        found["scale", 0] = moments
    return found


def load(run: Run, path: Path) -> None:
    optimizer = run.optimizer.sharded_state_dict({}, is_loading=True)
    loaded = dist_checkpointing.load(rest() | {"optimizer": optimizer}, str(path))
    assert loaded["iteration"] == 3 and "weights" in loaded
    run.optimizer.load_state_dict(loaded["optimizer"])


def python_store(_case: str, base: Path) -> None:
    path = directory(base, "python_store")
    dist_checkpointing.save(rest(), str(path))
    if RANK == 0:
        shutil.copytree(REFERENCE / "nvme_opt_state", path / "nvme_opt_state")
        native = "fp32_resident_optimizer.pt"
        shutil.copy(REFERENCE / native, path / "nvme_opt_state/rank00000/opt0_0" / native)
    dist.barrier()
    with millpond.megatron.streamed(**options()) as session:
        run = Run.start(CASES["net"], make=net)
        load(run, path)
        (member,) = session.members()
        wanted = expected()
        assert len(member.shards) == len(wanted), "a shard is not in the reference"
        assert member.steps == 3
        for index, shard in enumerate(member.shards):
            for segment, got in segments_of(member, index).items():
                assert same(got, wanted[shard.key, shard.flat[0]][segment]), (shard.key, segment)
            assert member.store.counter(index) == 3
    damaged(path)


def damaged(path: Path) -> None:
    """A file that is cut short on rank 1 is refused on every rank, before a value is written."""
    if RANK == 0:
        whole = path / "nvme_opt_state/rank00001/opt0_0/bucket00002.bin"
        whole.write_bytes(whole.read_bytes()[:-4096])
    dist.barrier()
    with millpond.megatron.streamed(**options()) as session:
        run = Run.start(CASES["net"], make=net)
        (member,) = session.members()
        before = [segments_of(member, index) for index in range(len(member.shards))]
        kind = CheckpointError if RANK == 1 else Exception
        words = refused(kind, "it is not whole", lambda: load(run, path))
        assert "bucket00002.bin" in words
        for index, segments in enumerate(before):
            for segment, values in segments_of(member, index).items():
                assert same(values, segments[segment])
        refused(StateError, "was not called with it", run.optimizer.step)
