"""State dicts: ours, plain torch's, and what must not pass without its bytes."""

from __future__ import annotations

import copy
import io
from typing import Any

import millpond
import millpond.torch
import pytest
import torch
from twins import Twin

SHAPES = [(17, 8), (4099,), (300, 7), ()]


def trained(scratch: Any, steps: int = 5, **flags: Any) -> Twin:
    twin = Twin(scratch, shapes=SHAPES, groups=({"lr": 3e-3}, {"lr": 1e-2}), **flags)
    for step in range(steps):
        twin.step(absent=[1] if step < 2 else [])
    return twin


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("fused", [False, True])
def test_B25_B28_B29_resume_equals_no_interruption(scratch, tmp_path, fused: bool) -> None:
    """B28: loaded before the first step. B29: a cold start goes another way."""
    twin = trained(scratch, fused=fused)
    path = tmp_path / "checkpoint"
    twin.optimizer.save(path)
    state = through_a_file(twin.optimizer.state_dict())
    weights = [p.detach().clone() for p in twin.mine]

    def again() -> Twin:
        other = Twin(scratch, shapes=SHAPES, groups=({}, {}), fused=fused, seed=9)
        other.resident, other.theirs = twin.resident, twin.theirs
        other.generator, other.bases = copy.copy(twin.generator), twin.bases
        other.generator.set_state(twin.generator.get_state())
        with torch.no_grad():
            for mine, saved in zip(other.mine, weights, strict=True):
                mine.copy_(saved)
        return other

    resumed, cold = again(), again()
    resumed.optimizer.load_state_dict(state)
    resumed.optimizer.load(path)
    for group, saved in zip(resumed.optimizer.param_groups, (3e-3, 1e-2), strict=True):
        assert group["lr"] == saved  # B27
    cold.draw()
    cold.optimizer.step()
    for _ in range(5):
        resumed.step()
    resumed.compare()
    resumed.compare_state()
    assert not torch.equal(cold.mine[0], resumed.mine[0])


def test_a_save_in_the_background(scratch, tmp_path) -> None:
    """Steps that follow change nothing of it; without commit it counts for nothing."""
    twin = trained(scratch)
    given_up = twin.optimizer.async_save(tmp_path / "never")
    given_up.cancel()
    with pytest.raises(millpond.CheckpointError):
        twin.optimizer.load(tmp_path / "never")
    under_way = twin.optimizer.async_save(tmp_path / "saved")
    weights = [p.detach().clone() for p in twin.mine]
    plain = twin.optimizer.plain_state_dict()
    twin.step()
    under_way.commit()
    done, total = under_way.progress()
    assert under_way.done() and done == total > 0
    with torch.no_grad():
        for mine, saved in zip(twin.mine, weights, strict=True):
            mine.copy_(saved)
    twin.optimizer.load(tmp_path / "saved")
    again = twin.optimizer.plain_state_dict()
    for number, state in plain["state"].items():
        for name, value in state.items():
            assert torch.equal(again["state"][number][name], value), (number, name)


def test_B34_hyperparameters_of_the_host_win_after_a_load(scratch, tmp_path) -> None:
    """load(path) leaves groups alone, and they are read in every step, also new dicts."""
    twin = trained(scratch)
    twin.optimizer.save(tmp_path)
    for optimizer in (twin.resident, twin.optimizer):
        optimizer.param_groups = [dict(group, lr=0.05) for group in optimizer.param_groups]
    twin.optimizer.load(tmp_path)
    twin.step()
    twin.compare()


def test_resuming_without_the_bytes_is_an_error(scratch, tmp_path) -> None:
    twin = trained(scratch)
    state = through_a_file(twin.optimizer.state_dict())
    other = Twin(scratch, shapes=SHAPES, groups=({}, {}), seed=4)
    other.optimizer.load_state_dict(state)
    other.draw()
    for action in (other.optimizer.step, lambda: other.optimizer.save(tmp_path / "never")):
        with pytest.raises(millpond.StateError, match="holds no moments"):
            action()
    with pytest.raises(millpond.CheckpointError):
        other.optimizer.load(tmp_path / "nothing")


def test_without_the_bytes_nothing_is_exported(scratch, tmp_path) -> None:
    """Never zeros in the place of moments that are not here."""
    twin = trained(scratch)
    state = through_a_file(twin.optimizer.state_dict())
    other = Twin(scratch, shapes=SHAPES, groups=({}, {}), seed=4)
    other.optimizer.load_state_dict(state)
    with pytest.raises(millpond.StateError, match="plain_state_dict: .* holds no moments"):
        other.optimizer.plain_state_dict()
    model = torch.nn.ParameterList(other.mine)
    with pytest.raises(millpond.StateError, match="export_dcp: .* holds no moments"):
        millpond.torch.export_dcp(tmp_path / "never", model, other.optimizer)
    assert not (tmp_path / "never").exists()


def test_handles_are_there_from_the_beginning(scratch) -> None:
    """A counter and two empty tensors for every parameter that requires a gradient."""
    frozen = torch.nn.Parameter(torch.zeros(1000), requires_grad=False)
    params = [torch.nn.Parameter(torch.zeros(1000)) for _ in range(2)]
    optimizer = millpond.torch.AdamW([*params, frozen], scratch=str(scratch))
    assert set(optimizer.state) == set(params)
    for state in optimizer.state.values():
        assert {name: value.shape for name, value in state.items()} == {
            "step": (), "exp_avg": (0,), "exp_avg_sq": (0,),
        }  # fmt: skip
        assert all(value.dtype == torch.float32 for value in state.values())


def test_a_pair_that_disagrees_is_refused(scratch, tmp_path) -> None:
    twin = trained(scratch)
    twin.optimizer.save(tmp_path / "five")
    twin.step()
    state = through_a_file(twin.optimizer.state_dict())
    other = Twin(scratch, shapes=SHAPES, groups=({}, {}))
    other.optimizer.load_state_dict(state)
    with pytest.raises(millpond.CheckpointError, match="not a pair"):
        other.optimizer.load(tmp_path / "five")
    other.draw()
    with pytest.raises(millpond.StateError, match="not a pair"):
        other.optimizer.step()


def test_round_trip_at_once(scratch) -> None:
    """What accelerate's prepare does: nothing is lost, nothing is asked for."""
    twin = trained(scratch)
    twin.optimizer.load_state_dict(twin.optimizer.state_dict())
    twin.step()
    twin.compare()
    twin.compare_state()


def test_rewinding_without_the_bytes_is_an_error(scratch) -> None:
    twin = trained(scratch)
    state = copy.deepcopy(twin.optimizer.state_dict())
    twin.step()
    twin.optimizer.load_state_dict(state)
    with pytest.raises(millpond.StateError, match="holds no moments"):
        twin.step()


@pytest.mark.parametrize("fused", [False, True])
def test_from_plain_torch(scratch, fused: bool) -> None:
    """Moments come in before torch casts them: bf16 parameters keep fp32 moments. A parameter that
    plain torch has no state for has none here either."""
    twin = trained(scratch, steps=3, fused=fused)
    state = copy.deepcopy(twin.resident.state_dict())
    other = Twin(scratch, shapes=SHAPES, groups=({}, {}), fused=fused, seed=1)
    other.step()  # something to be overwritten
    with torch.no_grad():
        for mine, their in zip(other.mine, twin.mine, strict=True):
            mine.copy_(their)
    other.theirs, other.resident = twin.theirs, twin.resident
    with torch.no_grad():
        for their, mine in zip(twin.theirs, twin.mine, strict=True):
            their.copy_(mine)  # mains begin as the weights
    other.optimizer.load_state_dict(state_dict=state)
    other.compare_state()
    for _ in range(3):
        other.step()
    other.compare()
    other.compare_state()


def test_to_plain_torch(scratch) -> None:
    """For people who leave."""
    twin = trained(scratch)
    plain = [torch.nn.Parameter(p.detach().float()) for p in twin.theirs]
    leaving = torch.optim.AdamW([{"params": plain[0::2]}, {"params": plain[1::2]}], lr=0.1)
    leaving.load_state_dict(through_a_file(twin.optimizer.plain_state_dict()))
    twin.draw()
    for p, their in zip(plain, twin.theirs, strict=True):
        p.grad = their.grad.clone()
    twin.resident.step()
    leaving.step()
    for p, their in zip(plain, twin.theirs, strict=True):
        assert torch.equal(p, their)


def test_flags_that_come_in_are_judged(scratch) -> None:
    twin = trained(scratch)
    state = twin.resident.state_dict()
    state["param_groups"][1]["amsgrad"] = True
    with pytest.raises(millpond.MillpondError, match="group 1 has amsgrad"):
        twin.optimizer.load_state_dict(state)
    twin.step()
    twin.compare()


def test_a_fused_state_dict_changes_the_arithmetic(scratch) -> None:
    fused = trained(scratch, fused=True)
    other = Twin(scratch, shapes=SHAPES, groups=({}, {}), foreach=True)
    other.step()
    before = other.optimizer.arithmetic
    other.optimizer.load_state_dict(copy.deepcopy(fused.resident.state_dict()))
    other.step()
    assert "fused" not in before and "fused" in other.optimizer.arithmetic


BAD = {
    "shape": (lambda s: s["state"][0].update(exp_avg=torch.zeros(5)), "exp_avg of 0.0"),
    "no_square": (lambda s: s["state"][0].pop("exp_avg_sq"), "no exp_avg_sq"),
    "groups": (lambda s: s["param_groups"].pop(), "the groups have"),
    "mixture": (
        lambda s: s["state"][0].update(exp_avg=torch.empty(0), exp_avg_sq=torch.empty(0)),
        "mixture",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_other_shapes_are_refused_by_name(scratch, name: str) -> None:
    twin = trained(scratch)
    state = copy.deepcopy(twin.resident.state_dict())
    spoil, words = BAD[name]
    spoil(state)
    with pytest.raises(millpond.CheckpointError, match=words):
        twin.optimizer.load_state_dict(state)
    twin.step()
    twin.compare()
    twin.compare_state()


def test_names(scratch, tmp_path) -> None:
    """With named parameters a model with its parameters in another order loads right."""

    def optimizer_of(order: list[str]) -> tuple[dict[str, Any], Any]:
        named = {name: torch.nn.Parameter(torch.zeros(5)) for name in order}
        return named, millpond.torch.AdamW(list(named.items()), scratch=str(scratch))

    first, saving = optimizer_of(["a", "b"])
    for i, p in enumerate(first.values()):
        p.grad = torch.full((5,), float(i + 1))
    saving.step()
    saving.save(tmp_path)
    second, loading = optimizer_of(["b", "a"])
    loading.load(tmp_path)
    plain = loading.plain_state_dict()["state"]
    assert torch.equal(plain[0]["exp_avg"], torch.full((5,), 0.2))
    assert torch.equal(plain[1]["exp_avg"], torch.full((5,), 0.1))
