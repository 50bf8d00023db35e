"""100 steps beside torch's own optimizer with the same flags: the same bits of parameters, mains
and moments, and the same counters."""

from __future__ import annotations

import logging

import pytest
import torch
from twins import Twin

STEPS = 100
ADAMW, ADAM = torch.optim.AdamW, torch.optim.Adam
CASES = {
    "single": (ADAMW, {"foreach": False}),
    "foreach": (ADAMW, {"foreach": True}),
    "fused": (ADAMW, {"fused": True}),
    "default": (ADAMW, {}),
    "maximize": (ADAMW, {"maximize": True, "foreach": True}),
    "fused_maximize": (ADAMW, {"maximize": True, "fused": True}),
    "adam_l2": (ADAM, {"weight_decay": 0.02}),
    "adam_fused_l2": (ADAM, {"weight_decay": 0.02, "fused": True}),
    "no_decay": (ADAMW, {"weight_decay": 0.0, "fused": True}),
    "small_beta": (ADAMW, {"betas": (0.3, 0.4)}),
}
GROUPS = ({"lr": 3e-3}, {"lr": 1e-2, "betas": (0.8, 0.95), "eps": 1e-6})


@pytest.mark.parametrize("name", CASES)
def test_same_bits(scratch, name: str) -> None:
    kind, flags = CASES[name]
    twin = Twin(scratch, kind, groups=GROUPS, **flags)
    for step in range(STEPS):
        # Some parameters have no gradient in some steps: neither bytes nor counters may move.
        absent = [i for i in range(len(twin.mine)) if i % 4 == 1 and step % 5 == 3]
        for resident, ours in zip(
            twin.resident.param_groups, twin.optimizer.param_groups, strict=True
        ):
            resident["lr"] = ours["lr"] = 3e-3 * (1 - step / 200)  # a scheduler
        twin.step(absent)
        if step < 3 or step % 20 == 19:
            twin.compare(f"step {step + 1}")
    twin.compare_state()


def test_large_parameter_through_many_tiles(scratch) -> None:
    """More elements than tiles and memory hold at once."""
    small = {"options": {"tile_elements": 65536}, "host_memory_bytes": 8 << 20}
    shapes = [(1_048_583,), (33, 4001)]
    twin = Twin(scratch, shapes=shapes, dtypes=[torch.bfloat16], ours=small, fused=True)
    for _ in range(STEPS // 10):
        twin.step()
    twin.compare()
    twin.compare_state()
    assert twin.optimizer.last_step().bytes_read > 0


def test_host_callback_is_exact(scratch, monkeypatch) -> None:
    """Where no variant has torch's bits, torch itself updates the pieces."""
    monkeypatch.setattr("millpond.torch.streamed.prove", lambda *_: None)
    for flags in ({"fused": True}, {"foreach": True, "maximize": True}):
        twin = Twin(scratch, shapes=[(257, 31), (4099,), (5,)], groups=GROUPS, **flags)
        for _ in range(10):
            twin.step()
        assert twin.optimizer.arithmetic == "host/1"
        twin.compare()
        twin.compare_state()


def test_tensor_lr_is_another_arithmetic(scratch) -> None:
    """A learning rate in a tensor, edited in place: torch computes with it in fp32."""
    rates = [torch.tensor(3e-3), torch.tensor(3e-3)]
    twin = Twin(scratch, shapes=[(65_541,), (300, 7)], groups=({},))
    for group, rate in zip(
        (twin.resident.param_groups[0], twin.optimizer.param_groups[0]), rates, strict=True
    ):
        group["lr"] = rate
    for _ in range(10):
        for rate in rates:
            rate.mul_(0.9)
        twin.step()
    twin.compare()
    twin.compare_state()


def test_groups_of_different_paths(scratch) -> None:
    """One group fused, the other foreach: no one variant has both."""
    groups = ({"fused": True, "foreach": False}, {"fused": False, "foreach": True})
    twin = Twin(scratch, groups=groups)
    for _ in range(10):
        twin.step()
    twin.compare()
    twin.compare_state()


def test_the_choice_is_logged_once(scratch, caplog) -> None:
    with caplog.at_level(logging.INFO, "millpond"):
        twin = Twin(scratch, shapes=[(100,)], groups=({},), fused=True)
        for _ in range(3):
            twin.step()
    lines = [r.message for r in caplog.records if r.message.startswith("arithmetic of")]
    assert len(lines) == 1 and "torch_cpu_fused/1" in lines[0]


def test_exact_off_does_not_prove(scratch, monkeypatch) -> None:
    monkeypatch.setattr("millpond.torch.streamed.prove", lambda *_: pytest.fail("proved"))
    twin = Twin(scratch, shapes=[(100,)], groups=({},), ours={"exact": "off"}, fused=True)
    twin.step()
    twin.compare()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_channels_last(scratch, dtype: torch.dtype) -> None:
    """Dense but not contiguous parameters, with gradients in their order and in the other."""
    torch.manual_seed(3)
    twin = Twin(scratch, shapes=[(8, 5, 3, 3), (6, 4, 3, 3)], dtypes=[dtype], groups=({},))
    for params in (twin.mine, twin.theirs):
        params[0].data = params[0].data.contiguous(memory_format=torch.channels_last)
    for step in range(10):
        twin.draw()
        if step % 2:
            for params in (twin.mine, twin.theirs):
                params[0].grad = params[0].grad.contiguous(memory_format=torch.channels_last)
        twin.resident.step()
        twin.optimizer.step()
    twin.compare()
    twin.compare_state()
