"""The small handles that stand in `optimizer.state`: a counter and two empty tensors a parameter.

Present for every parameter that is updated, from construction, and equal on all ranks: that is
what torch's distributed checkpoints need. The counters are views of one tensor, so that a step of
10,000 parameters adds once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter, is_
from typing import Any

import torch
from torch import Tensor

from .binding import Entry

# Read through map(): ten thousand parameters are looked at in every step.
_REQUIRES_GRAD, _GRAD = attrgetter("requires_grad"), attrgetter("grad")


def _same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(map(is_, one, other))


class Handles:
    def __init__(self, optimizer: Any):
        self._optimizer = optimizer
        self.entries: list[Entry] = []
        self._parameters: list[Tensor] = []  # of the entries
        self._members: list[list[Tensor]] = []  # what the groups had when the entries were made
        self._frozen: list[Tensor] = []  # those of them that are no entries
        self._counters = torch.zeros(0)

    def extend(self) -> None:
        """Follows param_groups: parameters that came, were replaced, or require a gradient now. A
        parameter that was counted stays, also frozen: its state is kept."""
        groups = self._optimizer.param_groups
        present = [group["params"] for group in groups]
        same = len(present) == len(self._members) and all(map(_same, present, self._members))
        if same and not any(map(_REQUIRES_GRAD, self._frozen)):
            return
        state = self._optimizer.state
        entries = self._named(
            Entry(name, number, parameter)
            for number, group in enumerate(groups)
            for name, parameter in zip(names_of(number, group), group["params"], strict=True)
            if parameter.requires_grad or parameter in state or parameter.grad is not None
        )
        by_place = {
            (e.name, e.group): float(c) for e, c in zip(self.entries, self._counters, strict=True)
        }
        counts = [by_place.get((e.name, e.group), 0.0) for e in entries]
        self.entries = entries
        self._parameters = [entry.parameter for entry in entries]
        followed = set(map(id, self._parameters))
        self._members = list(map(list, present))
        self._frozen = [p for params in present for p in params if id(p) not in followed]
        self.install(counts)

    def gradients(self) -> list[Tensor | None]:
        """Of the entries, now."""
        return list(map(_GRAD, self._parameters))

    def _named(self, found: Iterable[Entry]) -> list[Entry]:
        """A parameter keeps its name when others leave or come before it; one that takes another's
        place takes its name."""
        entries = list(found)
        known = {id(entry.parameter): entry.name for entry in self.entries}
        kept = [known.get(id(entry.parameter)) for entry in entries]
        used = {name for name in kept if name is not None}
        made = []
        for entry, old in zip(entries, kept, strict=True):
            name = old if old is not None else entry.name
            while old is None and name in used:
                name += "'"
            used.add(name)
            made.append(Entry(name, entry.group, entry.parameter))
        return made

    def install(self, counts: Sequence[float]) -> None:
        """Makes all handles anew with these counters."""
        state = self._optimizer.state
        state.clear()
        self._counters = torch.tensor(list(counts), dtype=torch.float32)
        for i, entry in enumerate(self.entries):
            state[entry.parameter] = {
                "step": self._counters[i],
                "exp_avg": torch.empty(0),
                "exp_avg_sq": torch.empty(0),
            }

    def count(self, has_grad: bytearray) -> None:
        """One more step for the parameters that had a gradient."""
        if has_grad:
            self._counters += torch.frombuffer(has_grad, dtype=torch.uint8)

    def most(self) -> int:
        """The largest counter."""
        return int(self._counters.max()) if len(self._counters) else 0


def names_of(number: int, group: dict[str, Any]) -> list[str]:
    """Names of a group's parameters: as named_parameters gave them, else by position."""
    names = group.get("param_names")
    if names:
        return list(names)
    return [f"{number}.{i}" for i in range(len(group["params"]))]
