"""Mains that take no memory, whatever the shard's size."""

from __future__ import annotations

import torch
from millpond.megatron.deferred import deferred_mains, is_handle


def test_B44_a_handle_is_made_without_the_shards_memory() -> None:
    """A shard whose fp32 copy would be 64 TiB: any allocation of it would fail."""
    shard = torch.empty(1, dtype=torch.bfloat16).expand(1 << 44)
    with deferred_mains():
        main = shard.clone().float()
    assert main.shape == shard.shape and main.dtype == torch.float32
    assert main.device == shard.device and is_handle(main)
    assert main.untyped_storage().nbytes() == 0


def test_other_tensors_are_copied_as_always() -> None:
    values = torch.arange(4, dtype=torch.bfloat16)
    with deferred_mains():
        assert values.view(2, 2).clone().float().tolist() == [[0.0, 1.0], [2.0, 3.0]]
        assert torch.equal(torch.ones(3).clone(), torch.ones(3))
        empty = torch.empty(0, dtype=torch.bfloat16).float()
    assert empty.numel() == 0 and not is_handle(empty)
    assert torch.equal(values.float(), torch.tensor([0.0, 1.0, 2.0, 3.0]))
