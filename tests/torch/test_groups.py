"""Process groups that differ from the usual one: this process alone, devices without the CPU."""

from __future__ import annotations

import millpond.torch
import pytest
import torch
from twins import differing


@pytest.mark.filterwarnings("ignore")
def test_async_save_where_the_group_takes_no_cpu_tensors(scratch, lone_group, tmp_path) -> None:
    """With nccl alone torch's async_save refuses. gloo for CUDA tensors only stands for it: the
    weights are written over a gloo group that the adapter makes."""
    lone_group("cuda:gloo")
    torch.manual_seed(1)
    model = torch.nn.Linear(30, 20)
    optimizer = millpond.torch.AdamW(model.parameters(), lr=1e-2, scratch=str(scratch))

    def train(steps: range) -> None:
        for step in steps:
            optimizer.zero_grad()
            x = torch.randn(5, 30, generator=torch.Generator().manual_seed(step))
            model(x).square().mean().backward()
            optimizer.step()

    train(range(3))
    with pytest.raises(AssertionError, match="CPU backend"):
        torch.distributed.checkpoint.async_save(
            {"model": model.state_dict()}, checkpoint_id=tmp_path / "plain"
        )
    under_way = millpond.torch.async_save(tmp_path / "pair", model, optimizer)
    train(range(3, 5))
    after = [p.detach().clone() for p in model.parameters()]
    under_way.commit()
    torch.distributed.destroy_process_group()  # DCP's own load would exchange CUDA tensors
    millpond.torch.load(tmp_path / "pair", model, optimizer)
    assert int(optimizer.state[model.weight]["step"]) == 3
    train(range(3, 5))
    for p, wanted in zip(model.parameters(), after, strict=True):
        assert differing(p, wanted) == 0
