"""Moments that go out, shaped as the parameters, for a plain torch optimizer."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..runtime import Store
from .binding import Binding
from .moments import MOMENTS, pieces, read


def outgoing(store: Store, bound: Binding) -> Iterator[dict[str, Tensor]]:
    """For each entry in turn exp_avg and exp_avg_sq: fp32 on the CPU, a DTensor where the parameter
    is one. Collective where each rank has a run of each parameter (shard_state)."""
    for i in range(len(bound.entries)):
        yield {name: _moment(store, bound, i, segment) for name, segment in MOMENTS.items()}


def _moment(store: Store, bound: Binding, i: int, segment: int) -> Tensor:
    local, parameter, place = bound.locals[i], bound.parameters[i], bound.placements[i]
    whole = torch.zeros(local.numel())
    begin, end = bound.ranges[i]
    for at, count in pieces(end - begin):
        whole[begin + at : begin + at + count] = read(store, i, segment, at, count)
    if len(bound.cuts) > 1:
        bound.ranks.spread([[whole[slice(*ranges[i])]] for ranges in bound.cuts])
    shaped = whole.view(place.box_shape).permute(inverse(place.order))
    if local is parameter:
        return shaped
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        shaped.contiguous(),
        parameter.device_mesh,  # type: ignore[attr-defined]
        parameter.placements,  # type: ignore[attr-defined]
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def inverse(order: tuple[int, ...]) -> list[int]:
    return [order.index(d) for d in range(len(order))]
