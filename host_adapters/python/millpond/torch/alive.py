"""Parameters that were replaced behind the optimizer: fully_shard after construction,
load_state_dict(assign=True). Their gradients are None for ever, and torch says nothing.

A parameter that a module owned once and none owns now is dead. Looking for owners walks all
objects, so it is done at the first step and at the 1st, 2nd, 4th, ... step without a gradient of a
parameter.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from itertools import compress, repeat
from operator import is_

import torch
from torch import Tensor

from .. import abi
from ..errors import StateError
from .binding import Entry


class Owned:
    def __init__(self) -> None:
        self.noted = False
        self._owned: set[int] = set()
        self._missing: dict[int, int] = {}

    def note(self, parameters: Sequence[Tensor]) -> None:
        """Remembers which of these parameters modules own."""
        self.noted = True
        owners = owned_now()
        self._owned = {id(p) for p in parameters if id(p) in owners}

    def check(self, entries: Sequence[Entry], gradients: Sequence[Tensor | None]) -> None:
        """Raises where a parameter without a gradient has lost its module."""
        suspects = []
        for entry in compress(entries, map(is_, gradients, repeat(None))):
            key = id(entry.parameter)
            if key in self._owned:
                count = self._missing[key] = self._missing.get(key, 0) + 1
                if count & (count - 1) == 0:
                    suspects.append(entry)
        if not suspects:
            return
        owners = owned_now()
        dead = [entry.name for entry in suspects if id(entry.parameter) not in owners]
        if dead:
            raise StateError(
                f"step: {len(dead)} parameters have left their module since the optimizer was made "
                f"({', '.join(dead[:3])}{', ...' if len(dead) > 3 else ''}): updates of them would "
                "go nowhere. Make the optimizer after fully_shard, and after "
                "load_state_dict(assign=True) or any other replacement of parameters.",
                code=abi.E_STATE,
            )


def owned_now() -> set[int]:
    """The ids of all Parameters that modules hold, FSDP2's sharded ones included."""
    found: set[int] = set()
    for thing in gc.get_objects():
        kind = type(thing)
        if issubclass(kind, torch.nn.Module):
            parameters = thing.__dict__.get("_parameters")
            if parameters:
                found.update(id(p) for p in parameters.values() if p is not None)
        elif kind.__name__ == "FSDPParam":
            found.add(id(getattr(thing, "sharded_param", None)))
    return found
