"""Weights and streamed state as one checkpoint; plain torch's moments in every form."""

from __future__ import annotations

import shutil
from pathlib import Path

import millpond
import millpond.torch
import pytest
import torch
from processes import run_ranks
from test_ranks import needs_fsdp2
from twins import differing


def model_and_optimizer(
    scratch: Path, seed: int = 1
) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(30, 20), torch.nn.Linear(20, 3).bfloat16())
    return model, millpond.torch.AdamW(model.parameters(), lr=1e-2, scratch=str(scratch))


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        x = torch.randn(5, 30, generator=torch.Generator().manual_seed(step))
        model[1](model[0](x).bfloat16()).float().square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("way", ["save", "async_save"])
@pytest.mark.filterwarnings("ignore")
def test_a_pair_resumes(scratch, tmp_path, way: str) -> None:
    model, optimizer = model_and_optimizer(scratch)
    train(model, optimizer, range(4))
    if way == "save":
        millpond.torch.save(tmp_path / "pair", model, optimizer, step=4)
    else:
        under_way = millpond.torch.async_save(tmp_path / "pair", model, optimizer, step=4)
    train(model, optimizer, range(4, 8))
    if way == "async_save":
        with pytest.raises(millpond.CheckpointError, match="no committed pair"):
            millpond.torch.load(tmp_path / "pair", model, optimizer)
        under_way.commit()
    again, resumed = model_and_optimizer(scratch, seed=2)
    assert millpond.torch.load(tmp_path / "pair", again, resumed, step=0) == {"step": 4}
    train(again, resumed, range(4, 8))
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        assert differing(a, b) == 0


@pytest.mark.filterwarnings("ignore")
def test_a_pair_that_disagrees_is_refused(scratch, tmp_path) -> None:
    model, optimizer = model_and_optimizer(scratch)
    train(model, optimizer, range(2))
    millpond.torch.save(tmp_path / "a", model, optimizer)
    train(model, optimizer, range(2, 4))
    millpond.torch.save(tmp_path / "b", model, optimizer)
    (weights_a,), (weights_b,) = ((tmp_path / n).glob("weights-*") for n in "ab")
    shutil.rmtree(weights_b)
    shutil.copytree(weights_a, weights_b)
    with pytest.raises(millpond.CheckpointError, match="not a pair"):
        millpond.torch.load(tmp_path / "b", model, optimizer)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", ["save", "async_save"])
def test_a_pair_whose_weights_fail(scratch, tmp_path, way: str) -> None:
    """The pair before stays the checkpoint, and the next save is none the worse."""
    model, optimizer = model_and_optimizer(scratch)
    train(model, optimizer, range(2))
    millpond.torch.save(tmp_path / "pair", model, optimizer, step=2)
    train(model, optimizer, range(2, 4))
    with pytest.raises(BaseException, match="pickle|local object"):
        if way == "save":
            millpond.torch.save(tmp_path / "pair", model, optimizer, step=lambda: 0)
        else:
            millpond.torch.async_save(tmp_path / "pair", model, optimizer, step=lambda: 0).commit()
    again, resumed = model_and_optimizer(scratch, seed=2)
    assert millpond.torch.load(tmp_path / "pair", again, resumed, step=0) == {"step": 2}
    assert int(resumed.state[again[0].weight]["step"]) == 2
    millpond.torch.save(tmp_path / "pair", model, optimizer, step=4)
    assert millpond.torch.load(tmp_path / "pair", again, resumed, step=0) == {"step": 4}
    assert len(list((tmp_path / "pair").glob("weights-*"))) == 1


@needs_fsdp2
def test_plain_moments_in_every_form(tmp_path) -> None:
    run_ranks("checkpoint_worker.py", 2, tmp_path, "forms", "plain_into_handles", "leave")


@needs_fsdp2
def test_a_pair_resumes_on_two_ranks(tmp_path) -> None:
    """B29: and a plain dcp.save, which is no pair, does not."""
    run_ranks("checkpoint_worker.py", 2, tmp_path, "pair", "marker")


@needs_fsdp2
def test_a_pair_of_two_ranks_on_one_and_four(tmp_path) -> None:
    run_ranks("checkpoint_worker.py", 2, tmp_path, f"write_pair,{tmp_path}")
    for ranks in (1, 4):
        run_ranks("checkpoint_worker.py", ranks, tmp_path, f"read_pair,{tmp_path}")
