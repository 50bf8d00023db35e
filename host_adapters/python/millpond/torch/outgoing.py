"""Moments that go out, shaped as the parameters, for a plain torch optimizer."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..runtime import Store
from .binding import Binding
from .moments import MOMENTS, pieces, read
from .placement import local_of


def outgoing(store: Store, bound: Binding) -> Iterator[dict[str, Tensor]]:
    """For each entry in turn exp_avg and exp_avg_sq: fp32 on the CPU, a DTensor where the parameter
    is one. Collective where each rank has a run of each parameter (shard_state)."""
    for i, parameter in enumerate(bound.parameters):
        yield {
            name: as_parameter(moment_of(store, bound, i, segment), parameter)
            for name, segment in MOMENTS.items()
        }


def moment_of(store: Store, bound: Binding, i: int, segment: int) -> Tensor:
    """A moment shaped as the parameter's local part."""
    place = bound.placements[i]
    whole = torch.zeros(bound.locals[i].numel())
    begin, end = bound.ranges[i]
    for at, count in pieces(end - begin):
        whole[begin + at : begin + at + count] = read(store, i, segment, at, count)
    if len(bound.cuts) > 1:
        bound.ranks.spread([[whole[slice(*ranges[i])]] for ranges in bound.cuts])
    return whole.view(place.box_shape).permute(inverse(place.order)).contiguous()


def as_parameter(local: Tensor, parameter: Tensor) -> Tensor:
    """A local part as a DTensor where the parameter is one."""
    if local_of(parameter) is parameter:
        return local
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        local,
        parameter.device_mesh,  # type: ignore[attr-defined]
        parameter.placements,  # type: ignore[attr-defined]
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def inverse(order: tuple[int, ...]) -> list[int]:
    return [order.index(d) for d in range(len(order))]
