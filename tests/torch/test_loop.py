"""What stands around an optimizer in a training loop goes on working, with torch's bits."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import millpond
import millpond.torch
import pytest
import torch
from nets import Net
from torch.optim import lr_scheduler
from twins import DEVICE, Twin, differing


def pair(scratch: Any, **flags: Any) -> tuple[Net, Any, Net, Any]:
    theirs = Net().to(DEVICE)
    mine = copy.deepcopy(theirs)
    resident = torch.optim.AdamW(theirs.parameters(), **flags)
    return (
        theirs,
        resident,
        mine,
        millpond.torch.AdamW(mine.parameters(), scratch=str(scratch), **flags),
    )


def loss_of(model: Net, step: int) -> torch.Tensor:
    x = torch.randint(0, 50, (16,), generator=torch.Generator().manual_seed(step)).to(DEVICE)
    return torch.nn.functional.cross_entropy(model(x, step % 3 != 1), x.roll(1))


def same(theirs: torch.nn.Module, mine: torch.nn.Module) -> None:
    for (name, a), b in zip(theirs.named_parameters(), mine.parameters(), strict=True):
        assert differing(a, b) == 0, name


def run(model: Net, optimizer: Any, steps: range, after: Callable[[], None] | None = None) -> None:
    for step in steps:
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss_of(model, step).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        if after:
            after()


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "B20_lambda": lambda o: lr_scheduler.LambdaLR(o, lambda s: 1 / (1 + s)),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 20),
    "one_cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.02, total_steps=20),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_tied_frozen_and_unused(scratch, name: str) -> None:
    """B20: a frozen parameter has no state; schedulers take the optimizer for torch's."""
    theirs, resident, mine, ours = pair(scratch, lr=0.01)
    for model, optimizer in ((theirs, resident), (mine, ours)):
        scheduler = SCHEDULERS[name](optimizer)
        run(model, optimizer, range(20), scheduler.step)
    same(theirs, mine)
    assert set(ours.state) == {p for p in mine.parameters() if p.requires_grad}
    assert (
        ours.state[mine.sometimes.weight]["step"] == resident.state[theirs.sometimes.weight]["step"]
    )


def test_gradient_accumulation_and_closure(scratch) -> None:
    theirs, resident, mine, ours = pair(scratch)
    for step in range(10):
        losses = []
        for model, optimizer in ((theirs, resident), (mine, ours)):

            def closure(model: Net = model, optimizer: Any = optimizer) -> torch.Tensor:
                optimizer.zero_grad()
                for part in range(3):
                    loss = loss_of(model, 3 * step + part) / 3  # noqa: B023 - called at once
                    loss.backward()
                return loss

            losses.append(optimizer.step(closure))
        assert torch.equal(losses[0], losses[1])
    same(theirs, mine)


def test_an_exception_in_a_closure_changes_nothing(scratch) -> None:
    _, _, mine, ours = pair(scratch)
    run(mine, ours, range(3))
    before = [p.detach().clone() for p in mine.parameters()]

    def closure() -> torch.Tensor:
        raise LookupError("the batch is gone")

    with pytest.raises(LookupError, match="the batch is gone"):
        ours.step(closure)
    assert all(torch.equal(a, b) for a, b in zip(before, mine.parameters(), strict=True))
    run(mine, ours, range(3, 5))


def test_add_param_group(scratch) -> None:
    theirs, resident, mine, ours = pair(scratch)
    run(theirs, resident, range(5))
    run(mine, ours, range(5))
    for model, optimizer in ((theirs, resident), (mine, ours)):
        model.frozen.requires_grad_(True)
        optimizer.param_groups[0]["params"] = [
            p for p in optimizer.param_groups[0]["params"] if p is not model.frozen.weight
        ]
        optimizer.add_param_group({"params": [model.frozen.weight], "lr": 0.1})
        run(model, optimizer, range(5, 10))
    same(theirs, mine)


def test_unfrozen_in_mid_training(scratch) -> None:
    theirs, resident, mine, ours = pair(scratch)
    for model, optimizer in ((theirs, resident), (mine, ours)):
        run(model, optimizer, range(4))
        model.frozen.requires_grad_(True)
        run(model, optimizer, range(4, 8))
        model.embed.requires_grad_(False)
        run(model, optimizer, range(8, 12))
    same(theirs, mine)


@pytest.mark.parametrize("fused", [False, True])
def test_B21_grad_scaler(scratch, fused: bool) -> None:
    """As plain AdamW for the same flags; steps with an infinity, in the last gradient only, are
    skipped: bytes and counters stay."""
    theirs, resident, mine, ours = pair(scratch, fused=fused)
    scales, counters = [], []
    for model, optimizer in ((theirs, resident), (mine, ours)):
        scaler = torch.amp.GradScaler(DEVICE.type, init_scale=3000.0, growth_interval=4)
        for step in range(12):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, step)).backward()
            if step in (5, 9):
                list(p for p in model.parameters() if p.grad is not None)[-1].grad[-1] = torch.inf
            if step % 4 == 2:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
            assert not hasattr(optimizer, "grad_scale") and not hasattr(optimizer, "found_inf")
        scales.append(scaler.get_scale())
        counters.append([int(s["step"]) for s in optimizer.state.values()])
    assert scales[0] == scales[1] and counters[0] == counters[1] and max(counters[0]) == 10
    same(theirs, mine)


def test_grad_scaler_with_fp16_parameters(scratch) -> None:
    """torch refuses to unscale fp16 gradients outside a step; inside, the division is in fp32."""
    twin = Twin(
        scratch, shapes=[(300, 7), (4099,)], dtypes=[torch.float16], groups=({},), fused=True
    )
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=128.0)
    scaler.scale(torch.ones((), device=DEVICE))
    for _ in range(5):
        twin.draw(scale=0.01)
        for their in twin.theirs:
            their.grad /= 128.0
        twin.resident.step()
        scaler.step(twin.optimizer)
        scaler.update()
    twin.compare()


def test_the_step_runs_outside_compiled_code(scratch) -> None:
    theirs, resident, mine, ours = pair(scratch)

    @torch.compile(backend="eager")
    def train(model: Net, optimizer: Any, step: int) -> None:
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for model, optimizer in ((theirs, resident), (mine, ours)):
            for step in range(3):
                train(model, optimizer, step)
    for a, b in zip(theirs.parameters(), mine.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_hooks_fire_once(scratch) -> None:
    _, _, mine, ours = pair(scratch)
    seen: list[str] = []
    ours.register_step_pre_hook(lambda *_: seen.append("before"))
    ours.register_step_post_hook(lambda *_: seen.append("after"))
    run(mine, ours, range(1))
    assert seen == ["before", "after"]


def test_autograd_notices_the_update(scratch) -> None:
    """A backward over a graph from before the step is wrong: torch must raise as ever."""
    _, _, mine, ours = pair(scratch)
    old = loss_of(mine, 0)
    loss_of(mine, 1).backward()
    ours.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        old.backward()


def test_B30_weights_loaded_behind_the_mains(scratch) -> None:
    """After 3 steps other weights are loaded, then a step at lr 0: the weights are the loaded ones.
    Weights that were only written with their own values keep the low bits of their mains."""
    twin = Twin(scratch, shapes=[(300, 7), (4099,)], dtypes=[torch.bfloat16], groups=({},))
    for _ in range(3):
        twin.step()
    with torch.no_grad():
        twin.mine[0].copy_(torch.full((300, 7), 0.75))
        twin.theirs[0].copy_(torch.full((300, 7), 0.75))
        twin.mine[1].mul_(1)
    for optimizer in (twin.resident, twin.optimizer):
        optimizer.param_groups[0]["lr"] = 0.0
    twin.step()
    assert bool((twin.mine[0] == 0.75).all())
    for optimizer in (twin.resident, twin.optimizer):
        optimizer.param_groups[0]["lr"] = 1e-3
    twin.step()
    twin.compare()
    twin.compare_state()


def test_refresh_after_edits_that_autograd_does_not_count(scratch) -> None:
    twin = Twin(scratch, shapes=[(4099,)], dtypes=[torch.bfloat16], groups=({"lr": 0.0},))
    twin.step()
    twin.mine[0].data.fill_(0.5)
    twin.optimizer.refresh()
    twin.step()
    assert bool((twin.mine[0] == 0.5).all())


def test_memory_moved_behind_the_optimizer(scratch) -> None:
    """`.data` of other memory: the next step binds anew and loses nothing."""
    twin = Twin(scratch, shapes=[(4099,), (300, 7)], groups=({},))
    for _ in range(3):
        twin.step()
        for mine in twin.mine:
            mine.data = mine.data.clone()
    twin.compare()
    twin.compare_state()


def test_a_changed_dtype_after_steps_is_an_error(scratch) -> None:
    twin = Twin(scratch, shapes=[(4099,)], dtypes=[torch.float32], groups=({},))
    twin.step()
    twin.mine[0].data = twin.mine[0].data.bfloat16()
    twin.mine[0].grad = torch.zeros_like(twin.mine[0])
    with pytest.raises(millpond.MillpondError, match="its state would be lost"):
        twin.optimizer.step()
