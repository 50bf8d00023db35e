"""The parameters as the plugin has them: identities in a HostProfile, addresses in C arrays, and
each step's gradients.

A binding is made for one set of Parameter objects at their present places; `moved` says when that
is over. Shard i is entry i.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, count
from operator import add, attrgetter
from typing import Any

import torch
from torch import Tensor

from .. import __version__, abi
from ..errors import MillpondError, Refusal, refused
from ..features import ACTIVE, FEATURES, INACTIVE
from .placement import DTYPES, Placement, flat, local_of, place
from .proof import dlpack_device
from .ranks import Ranks, cut

# Read through map(): ten thousand parameters are looked at in every step.
_DTYPE, _VERSION = attrgetter("dtype"), attrgetter("_version")

MAIN_AND_MOMENTS, MOMENTS_ONLY = 1, 2
DENSE = 1


@dataclass(frozen=True)
class Entry:
    """One parameter of the optimizer that is updated."""

    name: str
    group: int
    parameter: Tensor


class Binding:
    """shard_state: every rank has whole parameters and streams its run of each. `before`: the
    binding that this one takes the place of."""

    def __init__(
        self, entries: Sequence[Entry], ranks: Ranks, shard_state: bool, before: Binding | None
    ):
        self.entries = entries
        self.ranks = ranks
        self.parameters = [entry.parameter for entry in entries]
        self.locals = [local_of(parameter) for parameter in self.parameters]
        self.placements = self._place()
        self.device = self.locals[0].device if self.locals else torch.device("cpu")
        flats = [flat(t, p.order) for t, p in zip(self.locals, self.placements, strict=True)]
        sizes = [t.numel() for t in flats]
        self._wholes = flats
        self.cuts = self._cut(sizes, before) if shard_state else [[(0, n) for n in sizes]]
        self.ranges = self.cuts[ranks.rank if shard_state else 0]
        self.flats = [t[a:b] for t, (a, b) in zip(flats, self.ranges, strict=True)]
        self.with_main = [t.dtype != torch.float32 for t in self.locals]
        self._rounded = list(compress(self.locals, self.with_main))
        self._around = list(compress(self.parameters, self.with_main))
        self._addresses = [t.data_ptr() for t in self.locals]
        self._dtypes = [t.dtype for t in self.locals]
        self._itself = [a is b for a, b in zip(self.locals, self.parameters, strict=True)]
        self._plain = all(self._itself)
        self._skip = [a * t.element_size() for t, (a, _) in zip(flats, self.ranges, strict=True)]
        self.grads = array("Q", [0]) * len(entries)
        self.dtypes = array("I", [DTYPES[t.dtype] for t in self.locals])
        self._own_dtypes = self.dtypes[:]
        self.has_grad = bytearray(len(entries))
        self._uncut = self._plain and not any(self._skip)
        self._contiguous = all(map(Tensor.is_contiguous, self.locals))
        self._copies: list[Tensor] = []
        self.versions: list[int] = []
        self.note_versions()

    def _place(self) -> list[Placement]:
        found = [place(entry.name, entry.parameter) for entry in self.entries]
        refusals = [f for f in found if isinstance(f, Refusal)]
        if refusals:
            raise refused(refusals)
        return [f for f in found if isinstance(f, Placement)]

    def _cut(self, sizes: list[int], before: Binding | None) -> list[list[tuple[int, int]]]:
        """Every rank's range of each parameter. One that was bound before keeps its ranges, since
        its state is where it was; the others are cut among themselves."""
        known = before.ranges_by_shard() if before is not None else {}
        kept = [known.get((self.key(i), place)) for i, place in enumerate(self.placements)]
        fresh = [size for size, ranges in zip(sizes, kept, strict=True) if ranges is None]
        made = iter(zip(*cut(fresh, self.ranks.size), strict=True))
        by_parameter = [ranges or next(made) for ranges in kept]
        return [list(ranges) for ranges in zip(*by_parameter, strict=True)]

    def ranges_by_shard(self) -> dict[tuple[str, Placement], tuple[tuple[int, int], ...]]:
        by_parameter = zip(*self.cuts, strict=True)
        return {
            (self.key(i), place): ranges
            for i, (place, ranges) in enumerate(zip(self.placements, by_parameter, strict=True))
        }

    # ---- what was bound, and whether it still is

    def moved(self, entries: Sequence[Entry]) -> bool:
        """Whether other Parameters, other memory or other dtypes are there now."""
        if entries is not self.entries:  # a list is never changed, but replaced
            if len(entries) != len(self.entries):
                return True
            for new, old in zip(entries, self.entries, strict=True):
                if new.parameter is not old.parameter or new.group != old.group:
                    return True
        return self.memory_moved()

    def memory_moved(self) -> bool:
        present = self.locals if self._plain else [local_of(p) for p in self.parameters]
        return (
            list(map(Tensor.data_ptr, present)) != self._addresses
            or list(map(_DTYPE, present)) != self._dtypes
        )

    def note_versions(self) -> None:
        """The weights as they are now are the ones that the mains belong to."""
        self.versions = self._versions()

    def _versions(self) -> list[int]:
        """Of the parameters with mains. A write through a DTensor is counted there and not in its
        local part, one through the local part only there."""
        inside = map(_VERSION, self._rounded)
        if self._plain:
            return list(inside)
        return list(map(add, inside, map(_VERSION, self._around)))

    def rewritten(self) -> list[int]:
        """Shards with mains whose parameter somebody has written since note_versions."""
        now = self._versions()
        if now == self.versions:
            return []
        with_main = compress(count(), self.with_main)
        return [i for i, a, b in zip(with_main, now, self.versions, strict=True) if a != b]

    def note_updated(self) -> None:
        """Tells autograd that the parameters with a gradient were written in place."""
        whole = self._plain and 0 not in self.has_grad
        updated = self.parameters if whole else self._updated()
        if updated:
            torch.autograd.graph.increment_version(updated)
        self.note_versions()

    def _updated(self) -> list[Tensor]:
        updated = [p for p, has in zip(self.parameters, self.has_grad, strict=True) if has]
        updated += [
            t
            for t, same, has in zip(self.locals, self._itself, self.has_grad, strict=True)
            if has and not same
        ]
        return updated

    def spread(self) -> None:
        """shard_state: what each rank has updated goes to all others. Collective."""
        parts = [
            [
                whole[a:b]
                for whole, (a, b), has in zip(self._wholes, ranges, self.has_grad, strict=True)
                if has
            ]
            for ranges in self.cuts
        ]
        self.ranks.spread(parts)

    # ---- the profile

    def profile(
        self, message: Any, arithmetic: str, class_name: str, epoch: int, groups: int
    ) -> Any:
        """`message`: from a name to the message's class (Plugin.message)."""
        ranks = self.ranks
        profile = message("HostProfile")(
            framework="torch", framework_version=torch.__version__, adapter="millpond.torch",
            adapter_version=__version__, arithmetic=arithmetic, config_epoch=epoch,
        )  # fmt: skip
        profile.optimizer.class_name, profile.optimizer.family = class_name, 1
        profile.topology.add(name="dp", rank=ranks.rank, size=ranks.size)
        fsdp = not all(self._itself)
        sharded = len(self.cuts) > 1
        active = {"parallel.fsdp": fsdp, "parallel.distributed_optimizer": sharded}
        for name in FEATURES:
            profile.features.add(name=name, state=ACTIVE if active.get(name) else INACTIVE)
        for group in range(groups):
            profile.groups.add(id=group, key=f"group{group}")
        number = dlpack_device(self.device)
        for i, entry in enumerate(self.entries):
            where = self.placements[i]
            begin, end = self.ranges[i]
            own = dlpack_device(self.locals[i].device)
            dtype = DTYPES[self.locals[i].dtype]
            profile.shards.add(
                id=i, key=self.key(i), global_shape=where.global_shape,
                box_offset=where.box_offset, box_shape=where.box_shape, flat_begin=begin,
                flat_end=end, group_id=entry.group,
                kind=MAIN_AND_MOMENTS if self.with_main[i] else MOMENTS_ONLY, model_dtype=dtype,
                grad_dtype=dtype, model_storage=DENSE, grad_storage=DENSE,
                device_type=own[0] if end > begin else number[0],
                device_id=own[1] if end > begin else number[1],
            )  # fmt: skip
        return profile

    def key(self, i: int) -> str:
        return self.entries[i].name + self.placements[i].suffix()

    def pointers(self) -> Any:
        """A ctypes array for bind. No gradients: every step passes their addresses."""
        made = (abi.ShardPointers * len(self.entries))()
        nothing = abi.Tensor(None, 0, 0, abi.DEVICE_CPU, 0, 0, 0)
        for i, run in enumerate(self.flats):
            n = run.numel()
            dtype = DTYPES[run.dtype]
            model = abi.Tensor(
                run.data_ptr() if n else None, 0, n, *dlpack_device(run.device), dtype, 0
            )
            made[i] = abi.ShardPointers(i, model, nothing, nothing)
        return made

    # ---- gradients

    def collect(self, gradients: Sequence[Tensor | None]) -> None:
        """Fills grads, dtypes and has_grad from the entries' gradients. Gradients whose memory is
        ordered otherwise than the parameter's are copied; the copies live until `forget`."""
        if self._collect_plain(gradients):
            return
        addresses, dtypes, has_grad, skip = self.grads, self.dtypes, self.has_grad, self._skip
        contiguous, strided = torch.Tensor.is_contiguous, torch.strided
        for i, grad in enumerate(gradients):
            if grad is None:
                has_grad[i] = 0
                addresses[i] = 0
                continue
            local = self.locals[i]
            if not self._itself[i]:
                grad = self._local_gradient(i, grad)
            if grad.layout is not strided:
                raise self._bad_gradient(
                    i, f"has the layout {grad.layout}", "torch.optim.SparseAdam"
                )
            dtype = DTYPES.get(grad.dtype)
            if dtype is None:
                raise self._bad_gradient(i, f"has the dtype {grad.dtype}", "torch.optim.AdamW")
            if not (contiguous(grad) and contiguous(local)) and grad.stride() != local.stride():
                grad = torch.empty_like(local, dtype=grad.dtype).copy_(grad)
                self._copies.append(grad)
            dtypes[i] = dtype
            has_grad[i] = 1
            address = grad.data_ptr()
            if skip[i]:
                address += skip[i] // local.element_size() * grad.element_size()
            addresses[i] = address

    def _collect_plain(self, gradients: Sequence[Any]) -> bool:
        """The usual case, without a loop in Python: every parameter is whole and contiguous and
        has a gradient of its own dtype. False, with nothing changed, where it is another."""
        if not (self._uncut and self._contiguous and gradients):
            return False
        try:
            if list(map(_DTYPE, gradients)) != self._dtypes:
                return False
            if not all(map(Tensor.is_contiguous, gradients)):
                return False
            addresses = array("Q", map(Tensor.data_ptr, gradients))
        except (AttributeError, RuntimeError):  # None has no dtype, a sparse tensor no address
            return False
        self.grads[:] = addresses
        self.dtypes[:] = self._own_dtypes
        self.has_grad[:] = b"\1" * len(gradients)
        return True

    def forget(self) -> None:
        """Copies of gradients are no longer read."""
        self._copies.clear()

    def _local_gradient(self, i: int, grad: Tensor) -> Tensor:
        placements = getattr(grad, "placements", None)
        wanted = self.parameters[i].placements  # type: ignore[attr-defined]
        if placements != wanted:
            raise self._bad_gradient(i, f"is placed as {placements}, the parameter as {wanted}", "")
        return local_of(grad)

    def _bad_gradient(self, i: int, what: str, instead: str) -> MillpondError:
        remedy = f" Give this parameter to {instead}." if instead else ""
        name = self.entries[i].name
        return MillpondError(
            f"step: the gradient of {name} {what}; fp32, bf16 and fp16 gradients laid out as the "
            f"parameter can be streamed.{remedy} Nothing was changed.",
            field=f"grads[{i}]",
        )


def address_of(buffer: Any) -> int:
    """Of an array.array or bytearray, valid while neither changes its length."""
    if isinstance(buffer, array):
        return buffer.buffer_info()[0]
    return ctypes.addressof((ctypes.c_char * len(buffer)).from_buffer(buffer)) if buffer else 0
