"""The ranks that share an optimizer: the plugin's allgather, verdicts, and parameters that each
rank has updated a part of."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .. import abi
from ..errors import MillpondError

_PIECE_BYTES = 32 << 20  # of a broadcast that gathers small parameters


class Ranks:
    """A process group, or this process alone. Every method that says so is collective."""

    def __init__(self, process_group: Any = None):
        together = dist.is_available() and dist.is_initialized()
        self.process_group = process_group
        self._background: Any = None
        self.rank = dist.get_rank(process_group) if together else 0
        self.size = dist.get_world_size(process_group) if together else 1
        self.group = abi.Group(1 if self.size > 1 else 0, self.rank, self.size)

    def background_group(self) -> Any:
        """A gloo group of the same ranks for work on another thread, made once. Collective the
        first time."""
        if self._background is None:
            members = dist.get_process_group_ranks(self.process_group or dist.group.WORLD)
            self._background = dist.new_group(
                members, backend="gloo", use_local_synchronization=True
            )
        return self._background

    def device(self) -> torch.device:
        """A device whose tensors this group can exchange."""
        backend = str(dist.get_backend(self.process_group))
        if "nccl" in backend and "gloo" not in backend:
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("cpu")

    def allgather(self, _group: abi.Group, send: int, receive: int, size: int) -> None:
        """The plugin's: `size` bytes of every rank, in the order of ranks. Collective."""
        given = (ctypes.c_uint8 * size).from_address(send)
        mine = torch.frombuffer(given, dtype=torch.uint8).to(self.device(), copy=True)
        everyone = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(everyone, mine, group=self.process_group)
        raw = torch.cat(everyone).cpu()
        ctypes.memmove(receive, raw.data_ptr(), size * self.size)

    def share_failure(self, doing: str, failure: BaseException | None) -> None:
        """Raises on every rank when any has failed, on one that has with its own. Collective."""
        if self.size > 1:
            words: list[str | None] = [None] * self.size
            dist.all_gather_object(
                words, f"{type(failure).__name__}: {failure}" if failure else None,
                group=self.process_group,
            )  # fmt: skip
            if failure is None:
                for rank, text in enumerate(words):
                    if text is not None:
                        raise MillpondError(f"{doing}: rank {rank}: {text}", code=abi.E_PEER)
        if failure is not None:
            raise failure

    def anywhere(self, here: bool) -> bool:
        """Whether it is so on any rank. Collective, a few bytes."""
        if self.size == 1:
            return here
        flag = torch.tensor([int(here)], device=self.device())
        dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=self.process_group)
        return bool(flag.item())

    def gather_objects(self, mine: Any) -> list[Any]:
        """Every rank's object, in the order of ranks. Collective."""
        if self.size == 1:
            return [mine]
        everyone: list[Any] = [None] * self.size
        dist.all_gather_object(everyone, mine, group=self.process_group)
        return everyone

    def broadcast_object(self, value: Any) -> Any:
        """Rank 0's value on every rank. Collective."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=self._global(0), group=self.process_group)
        return box[0]

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier(group=self.process_group)

    def spread(self, parts: Sequence[Sequence[Tensor]]) -> None:
        """parts[r]: flat views of what rank r has updated, listed alike on every rank. Afterwards
        all ranks have all of them. Collective. Tensors of the CPU travel on a device that the group
        knows."""
        for rank, views in enumerate(parts):
            source = self._global(rank)
            for piece in _pieces(views):
                there = self.device() if piece[0].device.type == "cpu" else piece[0].device
                if len(piece) == 1 and there == piece[0].device:
                    dist.broadcast(piece[0], src=source, group=self.process_group)
                    continue
                joined = torch.cat(piece).to(there)
                dist.broadcast(joined, src=source, group=self.process_group)
                if rank != self.rank:
                    sizes = [view.numel() for view in piece]
                    for view, values in zip(piece, torch.split(joined, sizes), strict=True):
                        view.copy_(values)

    def _global(self, rank: int) -> int:
        if self.process_group is None:
            return rank
        return dist.get_global_rank(self.process_group, rank)


def _pieces(views: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Views of one dtype and device, small ones together."""
    piece: list[Tensor] = []
    held = 0
    for view in views:
        if not view.numel():
            continue
        size = view.numel() * view.element_size()
        other = piece and (piece[0].dtype, piece[0].device) != (view.dtype, view.device)
        if piece and (other or held + size > _PIECE_BYTES):
            yield piece
            piece, held = [], 0
        piece.append(view)
        held += size
    if piece:
        yield piece


def cut(sizes: Sequence[int], ranks: int) -> list[list[tuple[int, int]]]:
    """For each rank the range of each parameter that it streams: runs of equal length over all
    elements, cut at multiples of 256 from a parameter's start, so that every run has the vector
    tail that the whole would have."""
    total = sum(sizes)
    cuts: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
    before = 0
    for size in sizes:
        at = [0]
        for rank in range(1, ranks):
            wanted = min(max(total * rank // ranks - before, 0), size)
            at.append(size if wanted == size else wanted // 256 * 256)
        at.append(size)
        for rank in range(ranks):
            cuts[rank].append((at[rank], at[rank + 1]))
        before += size
    return cuts
