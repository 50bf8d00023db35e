"""A state dict that comes in: judged whole before anything changes, then its moments streamed in.

Two kinds come. One of ours has empty handles and a marker: the bytes are in a checkpoint that
`save` wrote. One of a plain torch optimizer has moments: local tensors, DTensors, or full tensors
on every rank. torch would cast them to the parameter's dtype, so they are taken out before it
looks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .. import abi
from ..errors import CheckpointError, MillpondError
from ..runtime import Store
from .binding import Binding, Entry
from .flags import refuse_flags
from .moments import MOMENTS, write_run, zero_run
from .placement import local_of
from .proof import stream_of

MARKER = "millpond"  # key of a group in a state dict
_MARKER_FORM = re.compile(r"millpond/1 runtime ([0-9a-f]{32}) step (\d+)")


def marker(runtime: str, step: int) -> str:
    return f"millpond/1 runtime {runtime} step {step}"


@dataclass(frozen=True)
class Incoming:
    """State by entry; None where the dict has none for a parameter (it never had a gradient)."""

    states: list[dict[str, Any] | None]
    runtime: str  # of the marker; "" without one

    @property
    def counters(self) -> list[int]:
        return [int(state["step"]) if state else 0 for state in self.states]

    @property
    def has_moments(self) -> bool:
        return any(state and not _is_handle(state) for state in self.states)


def _is_handle(state: dict[str, Any]) -> bool:
    return all(name in state and state[name].numel() == 0 for name in MOMENTS)


def judge(
    state_dict: dict[str, Any],
    groups: list[dict[str, Any]],
    entries: Sequence[Entry],
) -> Incoming:
    """Raises with a name where the dict does not fit; nothing has changed then."""
    saved = state_dict["param_groups"]
    lengths = [len(group["params"]) for group in groups]
    theirs = [len(group["params"]) for group in saved]
    if lengths != theirs:
        raise CheckpointError(
            f"load_state_dict: the groups have {theirs} parameters, this optimizer's {lengths}",
            code=abi.E_MISMATCH,
            field="param_groups",
        )
    for number, group in enumerate(saved):
        refuse_flags(group, f"load_state_dict: group {number} has")
    index = {id(entry.parameter): i for i, entry in enumerate(entries)}
    states: list[dict[str, Any] | None] = [None] * len(entries)
    for group, mine in zip(saved, groups, strict=True):
        for key, parameter in zip(group["params"], mine["params"], strict=True):
            state = state_dict["state"].get(key)
            if not state:
                continue
            if id(parameter) not in index:
                raise CheckpointError(
                    f"load_state_dict: {key} has state, but the parameter does not require a "
                    "gradient here",
                    code=abi.E_MISMATCH,
                    field=str(key),
                )
            i = index[id(parameter)]
            states[i] = _checked(entries[i], state)
    given = [state for state in states if state]
    handles = [
        _is_handle(s) and local_of(e.parameter).numel() != 0
        for s, e in zip(states, entries, strict=True)
        if s
    ]
    moments = [not _is_handle(s) for s in given]
    if any(handles) and any(moments):
        raise CheckpointError(
            "load_state_dict: some parameters come with moments and others with empty handles of "
            "Millpond: this is a mixture of two checkpoints",
            code=abi.E_MISMATCH,
            field="state",
        )
    found = [_MARKER_FORM.fullmatch(str(group.get(MARKER, ""))) for group in saved]
    return Incoming(states, next((m[1] for m in found if m), ""))


def _checked(entry: Entry, state: dict[str, Any]) -> dict[str, Any]:
    if "max_exp_avg_sq" in state:
        raise MillpondError(
            f"load_state_dict: {entry.name} has max_exp_avg_sq, the state of amsgrad", field="state"
        )
    for name in ("step", *MOMENTS):
        if name not in state:
            raise CheckpointError(
                f"load_state_dict: the state of {entry.name} has no {name}: it is not Adam's",
                code=abi.E_MISMATCH,
                field=entry.name,
            )
    if _is_handle(state):
        return state
    for name in MOMENTS:
        value = state[name]
        shapes = {tuple(entry.parameter.shape), tuple(local_of(entry.parameter).shape)}
        if tuple(value.shape) not in shapes or not value.is_floating_point():
            raise CheckpointError(
                f"load_state_dict: {name} of {entry.name} is {value.dtype} {tuple(value.shape)}, "
                f"the parameter {tuple(entry.parameter.shape)}",
                code=abi.E_MISMATCH,
                field=entry.name,
            )
    return state


def stream_in(incoming: Incoming, store: Store, bound: Binding) -> None:
    """Moments and counters into the bound store, a piece at a time. Collective where a DTensor must
    be put together from other placements. Mains begin anew as the weights: the dict has none."""
    store.refresh(stream_of(bound.device))
    for i, state in enumerate(incoming.states):
        numel = bound.flats[i].numel()
        for name, segment in MOMENTS.items():
            if state is None or state[name].numel() == 0:
                if store.counter(i) or state is None:
                    zero_run(store, i, segment, numel)
            else:
                write_run(store, i, segment, run_of(state[name], bound, i))
    set_counters(incoming.counters, store)


def set_counters(counters: Sequence[int], store: Store) -> None:
    for i, counter in enumerate(counters):
        store.set_counter(i, counter)


def run_of(value: Tensor, bound: Binding, i: int) -> Tensor:
    """This rank's run of a tensor that is shaped as the parameter, or as its local part."""
    parameter, local, place = bound.parameters[i], bound.locals[i], bound.placements[i]
    if local_of(value) is not value:  # a DTensor
        same = getattr(parameter, "placements", None) == value.placements  # type: ignore[attr-defined]
        value = local_of(value) if same else value.full_tensor()  # type: ignore[attr-defined]
    value = value.detach()
    if value.shape != local.shape:
        first = place.box_offset[place.order.index(0)]
        value = value[first : first + local.shape[0]]
    begin, end = bound.ranges[i]
    return value.permute(place.order).reshape(-1)[begin:end]
