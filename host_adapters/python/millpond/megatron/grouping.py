"""Groups of a checkpoint given to the live ones, by Megatron's identifier keys: their order differs
between releases."""

from __future__ import annotations

from typing import Any

from .. import abi
from ..errors import CheckpointError
from .layout import group_key


def apply_groups(live: list[dict[str, Any]], saved: list[dict[str, Any]]) -> None:
    """In place; parameters stay. Groups of equal keys are taken in their order."""
    by_key: dict[str, list[dict[str, Any]]] = {}
    for group in saved:
        by_key.setdefault(group_key(group), []).append(group)
    for group in live:
        key = group_key(group)
        matching = by_key.get(key)
        if not matching:
            raise CheckpointError(
                f"the checkpoint has no parameter group of {key}; it has {sorted(by_key)}",
                code=abi.E_MISMATCH,
                field=key,
            )
        given = matching.pop(0) if len(matching) > 1 else matching[0]
        for name, value in given.items():
            if name not in ("params", "step"):
                group[name] = value
