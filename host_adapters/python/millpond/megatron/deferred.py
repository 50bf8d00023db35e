"""Mains that Megatron never holds: handles with identity, shape, dtype and device, and no memory.

DistributedOptimizer makes each fp32 main as `shard.clone().float()` inside
`_build_model_and_main_param_groups`. Inside `deferred_mains` these two calls on a flat 16-bit shard
make a handle. Reading a handle crashes the process (on CPU a segmentation fault), so every reader
is bound or refused: readers.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def handle_of(shard: Tensor) -> Tensor:
    """An fp32 tensor of the shard's shape and device whose storage is empty. Never more than one
    element's memory, however large the shard: a repeated element (stride 0) whose storage goes."""
    if shard.numel() == 0:
        return torch.empty(0, dtype=torch.float32, device=shard.device)
    handle = torch.empty(1, dtype=torch.float32, device=shard.device).expand(shard.shape)
    handle.untyped_storage().resize_(0)
    return handle


def is_handle(tensor: Tensor) -> bool:
    """A tensor with elements and no memory for them."""
    return tensor.numel() > 0 and tensor.untyped_storage().nbytes() == 0


@contextmanager
def deferred_mains() -> Iterator[None]:
    """On this thread's way through `_build_model_and_main_param_groups` only."""
    clone, to_float = Tensor.clone, Tensor.float

    def shard_of_model(tensor: Tensor) -> bool:
        return (
            type(tensor) is Tensor
            and tensor.dim() == 1
            and tensor.dtype in (torch.bfloat16, torch.float16)
        )

    def clone_or_itself(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return self if shard_of_model(self) else clone(self, *args, **kwargs)

    def float_or_handle(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return handle_of(self) if shard_of_model(self) else to_float(self, *args, **kwargs)

    Tensor.clone, Tensor.float = clone_or_itself, float_or_handle  # type: ignore[assignment]
    try:
        yield
    finally:
        Tensor.clone, Tensor.float = clone, to_float  # type: ignore[method-assign]
