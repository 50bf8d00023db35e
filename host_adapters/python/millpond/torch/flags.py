"""Flags of a parameter group: those that choose the arithmetic, and those that are refused."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..errors import MillpondError

_REFUSED = {
    "amsgrad": "the running maximum of exp_avg_sq is not streamed. Use amsgrad=False.",
    "capturable": "a streamed step cannot be captured into a CUDA graph. Use capturable=False.",
    "differentiable": "autograd cannot go through a streamed step. Use differentiable=False.",
}
_CHOOSING = ("foreach", "fused", "maximize", "decoupled_weight_decay")


def refuse_flags(given: dict[str, Any], where: str) -> None:
    """Raises where `given`, a group or arguments, has one of the refused flags. `where`: what the
    error begins with."""
    for name, why in _REFUSED.items():
        if given.get(name):
            raise MillpondError(f"{where} {name}=True: {why}", field=name)


def flags_of(groups: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """More than numbers that may change from step to step: where it differs, the arithmetic is
    chosen and the flags are judged anew."""
    return [
        (
            *map(group.get, _CHOOSING),
            isinstance(group["lr"], Tensor),
            *map(bool, map(group.get, _REFUSED)),
        )
        for group in groups
    ]
