"""Segments of a bound store as tensors, a piece at a time: never a whole optimizer's state in
memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from ..abi import SEGMENT_EXP_AVG, SEGMENT_EXP_AVG_SQ, SEGMENT_MAIN
from ..runtime import Store
from .binding import Binding

PIECE = 1 << 22  # elements, 16 MiB of fp32
MOMENTS = {"exp_avg": SEGMENT_EXP_AVG, "exp_avg_sq": SEGMENT_EXP_AVG_SQ}


def pieces(numel: int) -> Iterator[tuple[int, int]]:
    for begin in range(0, numel, PIECE):
        yield begin, min(PIECE, numel - begin)


def read(store: Store, shard: int, segment: int, begin: int, count: int) -> Tensor:
    """fp32 on the CPU."""
    values = torch.empty(count)
    if count:
        store.read(shard, segment, begin, count, values.data_ptr())
    return values


def write(store: Store, shard: int, segment: int, begin: int, values: Tensor) -> None:
    given = values.detach().to("cpu", torch.float32).contiguous()
    if given.numel():
        store.write(shard, segment, begin, given.numel(), given.data_ptr())


def write_run(store: Store, shard: int, segment: int, run: Tensor) -> None:
    """A shard's whole run, from any device and floating dtype."""
    for begin, count in pieces(run.numel()):
        write(store, shard, segment, begin, run[begin : begin + count])


def zero_run(store: Store, shard: int, segment: int, numel: int) -> None:
    for begin, count in pieces(numel):
        write(store, shard, segment, begin, torch.zeros(count))


def reconcile(store: Store, bound: Binding, shards: Iterable[int]) -> int:
    """Mains follow weights that were written behind them: where a weight is no longer its main,
    rounded, the main becomes the weight; everywhere else it keeps its low bits. Returns the number
    of shards with a change."""
    changed = 0
    for shard in shards:
        run = bound.flats[shard]
        shard_changed = False
        for begin, count in pieces(run.numel()):
            weights = run[begin : begin + count].cpu()
            mains = read(store, shard, SEGMENT_MAIN, begin, count)
            differs = mains.to(weights.dtype).view(torch.int16) != weights.view(torch.int16)
            if bool(differs.any()):
                write(
                    store, shard, SEGMENT_MAIN, begin, torch.where(differs, weights.float(), mains)
                )
                shard_changed = True
        changed += shard_changed
    return changed
