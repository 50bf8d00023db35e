"""A checkpoint of the Python store that Millpond replaces: `<base>/rank00000/opt0_0/manifest.json`
with buckets of raw values beside it, and native fp32 parameters' moments in a file of torch.

Nothing in it has names or sums: an entry's parameter follows from Megatron's layout, which must be
that of the run that saved. The files' sizes, every number of elements and every counter are checked
before a value is written. Layout: each bucket file has for each of main, exp_avg, exp_avg_sq its
entries one after another, each filled with zeros to whole pages of 4096 bytes; the entries of a
bucket go group by group, in the saver's order of groups, which differs between releases.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .. import abi
from ..errors import CheckpointError
from ..torch.moments import pieces, write, write_run
from .layout import Shard

PAGE = 4096
SEGMENTS = {"main": abi.SEGMENT_MAIN, "exp_avg": abi.SEGMENT_EXP_AVG,
            "exp_avg_sq": abi.SEGMENT_EXP_AVG_SQ}  # fmt: skip
STORAGE = {"torch.float32": torch.float32, "torch.bfloat16": torch.bfloat16}
MOMENTS = {"fp32": torch.float32, "bf16": torch.bfloat16}  # unscaled formats of both stores
NATIVE = "fp32_resident_optimizer.pt"


@dataclass(frozen=True)
class Place:
    """Where one shard's segment begins, in bytes of a file."""

    shard: int
    segment: str
    path: Path
    offset: int


def is_there(base: Path) -> bool:
    """Whether `base` has such a checkpoint. A save of ours is one folder deeper."""
    return any(base.glob("rank*/opt*_*/manifest.json"))


def stores_of(members: Sequence[Any], base: Path, options: dict[str, Any]) -> list[Saved]:
    """This rank's stores in the checkpoint, checked as a whole. That store numbers its optimizers
    without stubs."""
    found: dict[int, Path] = {}
    if members:
        rank = members[0].uid.split("/")[0]
        found = {int(path.name.rsplit("_", 1)[1]): path for path in (base / rank).glob("opt*_*")}
    if len(found) != len(members):
        raise _mismatch(
            f"{base} has {len(found)} stores of this rank, the run has {len(members)}: that format "
            "resumes with the same ranks and optimizers only",
            "rank",
        )
    wanted = MOMENTS.get(options.get("moments", "fp32"))
    return [saved_in(m, found[n], wanted) for m, n in zip(members, sorted(found), strict=True)]


def saved_in(member: Any, directory: Path, moments: torch.dtype | None) -> Saved:
    """`member`'s store in `directory`, by the one order of groups that the files' entries fit."""
    fitting, refusals = [], []
    for order in orders_of(member.inner.param_groups):
        try:
            fitting.append(Saved(member, directory, moments, order))
        except CheckpointError as refusal:
            refusals.append(refusal)
    if not fitting:
        raise next((one for one in refusals if one.code != abi.E_MISMATCH), refusals[0])
    if any(one.entries != fitting[0].entries for one in fitting):
        raise _mismatch(
            f"{directory}: its entries' sizes fit two orders of parameter groups, and it does not "
            "say which one it was saved with. Load it with core 0.16 or newer, whose order is that "
            "store's, and save there",
            "entry_numels",
        )
    return fitting[0]


def orders_of(groups: Sequence[dict[str, Any]]) -> list[list[int]]:
    """Orders of this run's groups that a saver may have had: the run's own, and where groups differ
    in weight decay alone, that of core 0.16 and newer, decayed ones first. Older cores have them as
    the model's parameters come."""
    own = list(range(len(groups)))
    if any(group.get("is_decoupled_lr") or group.get("lr_mult", 1.0) != 1.0 for group in groups):
        return [own]
    newer = sorted(own, key=lambda index: -groups[index].get("wd_mult", 1.0))
    return [own] if newer == own else [own, newer]


class Saved:
    """One store: `member`'s shards and where their values are, given the saver's `order` of groups.
    The constructor checks, `install` writes."""

    def __init__(
        self, member: Any, directory: Path, moments: torch.dtype | None, order: Sequence[int]
    ):
        self._member, self._directory = member, directory
        self._place = {group: place for place, group in enumerate(order)}
        self._manifest = json.loads((directory / "manifest.json").read_text())
        self._dtypes = self._storage(moments)
        self.entries = self._in_file_order()  # indices of the streamed shards
        self._steps: dict[int, int] = {}  # by group
        self._places: list[Place] = []
        self._read_buckets()
        self._native = self._read_native()
        self._check_counted()

    @property
    def steps(self) -> int:
        """Completed steps of the store."""
        return max(self._steps.values(), default=0)

    def install(self) -> None:
        """Writes every value and counter into the live store, a piece at a time."""
        store, shards = self._member.store, self._member.shards
        for place in self._places:
            for begin, values in self._values(place):
                write(store, place.shard, SEGMENTS[place.segment], begin, values)
        for index, state in self._native.items():
            for segment in ("exp_avg", "exp_avg_sq"):
                write_run(store, index, SEGMENTS[segment], state[segment])
        for index, shard in enumerate(shards):
            store.set_counter(index, self._steps.get(shard.group, 0))

    def _values(self, place: Place) -> Iterator[tuple[int, torch.Tensor]]:
        """Pieces of one shard's segment with the element at which each begins."""
        dtype = self._dtypes[place.segment]
        with place.path.open("rb") as file:
            for begin, count in pieces(_numel(self._member.shards[place.shard])):
                file.seek(place.offset + begin * dtype.itemsize)
                raw = bytearray(file.read(count * dtype.itemsize))
                yield begin, torch.frombuffer(raw, dtype=dtype)

    # ---- checks

    def _storage(self, moments: torch.dtype | None) -> dict[str, torch.dtype]:
        names = self._manifest.get("dtypes", dict.fromkeys(SEGMENTS, "torch.float32"))
        dtypes = {segment: STORAGE.get(names[segment]) for segment in SEGMENTS}
        for segment in ("exp_avg", "exp_avg_sq"):
            if moments is None or dtypes[segment] is not moments:
                raise _mismatch(
                    f"{self._directory}: moments are stored as {names[segment]}; this run's option "
                    "moments must be the same format, and one of fp32 and bf16: the others are "
                    "scaled differently. Set --stream-optimizer-state-moments",
                    segment,
                )
        return {segment: dtype for segment, dtype in dtypes.items() if dtype is not None}

    def _read_buckets(self) -> None:
        at = 0
        for meta in self._manifest["buckets"]:
            numels = meta["entry_numels"]
            entries, at = self.entries[at : at + len(numels)], at + len(numels)
            live = [_numel(self._member.shards[index]) for index in entries]
            path = self._directory / Path(meta["file"]).name
            if live != numels:
                raise _mismatch(
                    f"{path} has entries of {numels} elements, this run's shards at that place "
                    f"have {live}: the layout is another (number of ranks, bucket size, release)",
                    "entry_numels",
                )
            self._count(entries, meta["steps"], path)
            offset = 0
            for segment, dtype in self._dtypes.items():
                for index, numel in zip(entries, numels, strict=True):
                    self._places.append(Place(index, segment, path, offset))
                    offset += -(-numel * dtype.itemsize // PAGE) * PAGE
            size = path.stat().st_size
            if size != offset:
                raise CheckpointError(
                    f"{path} has {size} bytes, its entries need {offset}: it is not whole",
                    code=abi.E_CORRUPT, wanted=offset, got=size, offset=min(size, offset),
                )  # fmt: skip
        if at != len(self.entries):
            raise _mismatch(
                f"{self._directory} has {at} entries, this run's shards are {len(self.entries)}",
                "entry_numels",
            )

    def _count(self, entries: Sequence[int], steps: Sequence[int], path: Path) -> None:
        """One counter for each group with an entry in the bucket, in the order of groups."""
        groups = {self._member.shards[index].group for index in entries}
        if len(steps) != len(groups):
            raise _mismatch(f"{path}: counters {steps} for the groups {sorted(groups)}", "steps")
        for group, step in zip(sorted(groups, key=self._place.__getitem__), steps, strict=True):
            if self._steps.setdefault(group, int(step)) != int(step):
                raise _mismatch(
                    f"{path}: group {group} is at step {step} here and at {self._steps[group]} in "
                    "another bucket",
                    "steps",
                )

    def _check_counted(self) -> None:
        """With an Adam that counts in each parameter's state, that store saved counters of 0."""
        for place in self._places:
            shard = self._member.shards[place.shard]
            if self._steps[shard.group] or place.segment != "exp_avg_sq":
                continue
            if any(bool(values.any()) for _, values in self._values(place)):
                raise CheckpointError(
                    f"{place.path}: {shard.key} has moments and the step counter 0: the number of "
                    "steps was never saved, and training on from here would repeat the first "
                    "steps' bias correction. Use --no-load-optim to begin with new moments.",
                    code=abi.E_CORRUPT, field=shard.key,
                )  # fmt: skip

    def _read_native(self) -> dict[int, dict[str, torch.Tensor]]:
        """Moments of native fp32 parameters, whose values are in the model's own part."""
        own = self._by_group(i for i, s in enumerate(self._member.shards) if s.native_fp32)
        path = self._directory / NATIVE
        if not own:
            return {}
        if not path.is_file():
            raise CheckpointError(f"{path} is missing", code=abi.E_MISSING)
        saved = torch.load(path, weights_only=True, map_location="cpu")
        self._count(own, [int(group.get("step", 0)) for group in saved["param_groups"]], path)
        found = {index: saved["state"][place] for place, index in enumerate(own)}
        for index, state in found.items():
            shard = self._member.shards[index]
            for segment in ("exp_avg", "exp_avg_sq"):
                if state[segment].numel() != _numel(shard):
                    raise _mismatch(
                        f"{path}: {segment} of {shard.key} has {state[segment].numel()} elements, "
                        f"this run's shard {_numel(shard)}",
                        shard.key,
                    )
        return found

    def _in_file_order(self) -> list[int]:
        """By Megatron's buffer and bucket, then by group, then in Megatron's order."""
        shards = self._member.shards
        streamed = self._by_group(i for i, shard in enumerate(shards) if not shard.native_fp32)
        return sorted(streamed, key=lambda index: shards[index].bucket)

    def _by_group(self, indices: Iterable[int]) -> list[int]:
        """In the saver's order of groups."""
        return sorted(indices, key=lambda index: self._place[self._member.shards[index].group])


def _numel(shard: Shard) -> int:
    return shard.flat[1] - shard.flat[0]


def _mismatch(text: str, field: str) -> CheckpointError:
    return CheckpointError(text, code=abi.E_MISMATCH, field=field)
