"""What each process of test_ranks.py does."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import millpond
import millpond.torch
import torch
import torch.distributed as dist
from loop_worker import loop
from processes import main
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from twins import DEVICE, compare_segments, differing


def rank() -> int:
    return dist.get_rank()


def scratch_of(folder: Path) -> str:
    made = folder / f"scratch{rank()}"
    made.mkdir(exist_ok=True)
    return str(made)


def build(seed: int, dtype: torch.dtype) -> torch.nn.Module:
    """Uneven rows: 17, 33 and 1 over 2 ranks; the last leaves rank 1 an empty shard."""
    torch.manual_seed(seed)
    net = torch.nn.Sequential(
        torch.nn.Linear(8, 17), torch.nn.Tanh(), torch.nn.Linear(17, 33), torch.nn.Tanh(),
        torch.nn.Linear(33, 1),
    )  # fmt: skip
    return net.to(DEVICE, dtype)


def batch(step: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank())
    return torch.randn(6, 8, generator=generator).to(DEVICE, dtype)


def grads_by_step(model: torch.nn.Module, step: int, dtype: torch.dtype) -> None:
    model(batch(step, dtype)).square().mean().backward()


def train_both(steps: int, *pairs: tuple[torch.nn.Module, Any]) -> None:
    """The same fp32 steps of each model with its optimizer."""
    for step in range(steps):
        for model, optimizer in pairs:
            optimizer.zero_grad()
            grads_by_step(model, step, torch.float32)
            optimizer.step()


def ddp(folder: Path, shard_state: str, fused: str, steps: str) -> None:
    """DDP against plain AdamW under DDP, fp32 directly."""
    sharded = shard_state == "1"
    flags: dict[str, Any] = {"lr": 1e-2, "fused": fused == "1"}
    mine, theirs = (
        torch.nn.parallel.DistributedDataParallel(build(3, torch.float32)) for _ in "12"
    )
    resident = torch.optim.AdamW(theirs.parameters(), **flags)
    ours = millpond.torch.AdamW(
        mine.parameters(), scratch=scratch_of(folder), shard_state=sharded, **flags
    )
    train_both(int(steps), (theirs, resident), (mine, ours))
    for a, b in zip(theirs.parameters(), mine.parameters(), strict=True):
        assert differing(a, b) == 0
    if sharded:
        streamed = sum(t.numel() for t in ours.binding.flats)
        total = sum(p.numel() for p in mine.parameters())
        assert streamed < total, (streamed, total)
        plain = ours.plain_state_dict()["state"]
        for i, state in resident.state_dict()["state"].items():
            for name in ("exp_avg", "exp_avg_sq"):
                assert differing(plain[i][name], state[name].cpu()) == 0
        export_is_refused(folder, mine, ours)
        come_to_runs(folder, theirs, resident, ours, flags)
    else:
        for i, p in enumerate(theirs.parameters()):
            compare_segments(ours, i, p, resident)


def come_to_runs(
    folder: Path, theirs: torch.nn.Module, resident: Any, ours: Any, flags: dict[str, Any]
) -> None:
    """A plain AdamW's state dict, and what `save` wrote, into new optimizers with shard_state: each
    rank takes its runs, and they go on with the same bits."""
    ours.save(folder / "saved")
    pairs = []
    for plain in (True, False):
        model = torch.nn.parallel.DistributedDataParallel(build(5, torch.float32))
        model.load_state_dict(theirs.state_dict())
        again = millpond.torch.AdamW(
            model.parameters(), scratch=scratch_of(folder), shard_state=True, **flags
        )
        if plain:
            again.load_state_dict(copy.deepcopy(resident.state_dict()))
        else:
            again.load(folder / "saved")
        pairs.append((model, again))
    train_both(3, (theirs, resident), *pairs)
    for model, again in pairs:
        assert int(again.state[next(model.parameters())]["step"]) > 3
        for a, b in zip(theirs.parameters(), model.parameters(), strict=True):
            assert differing(a, b) == 0
        again.close()


def export_is_refused(folder: Path, model: torch.nn.Module, optimizer: Any) -> None:
    """A rank has a run of every parameter, which DCP cannot put together: nothing is written."""
    place = folder / "exported"
    try:
        millpond.torch.export_dcp(place, model, optimizer)
    except millpond.MillpondError as error:
        assert error.field == "shard_state" and "plain_state_dict()" in str(error), str(error)
    else:
        raise AssertionError("runs of parameters were exported as whole ones")
    assert not place.exists()


def shard(model: torch.nn.Module) -> torch.nn.Module:
    from torch.distributed.fsdp import fully_shard

    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer)
    return fully_shard(model)


def fsdp_fp32(folder: Path, fused: str, steps: str) -> None:
    flags: dict[str, Any] = {"lr": 1e-2, "fused": fused == "1"}
    theirs, mine = shard(build(5, torch.float32)), shard(build(5, torch.float32))
    resident = torch.optim.AdamW(theirs.parameters(), **flags)
    ours = millpond.torch.AdamW(mine.parameters(), scratch=scratch_of(folder), **flags)
    train_both(int(steps), (theirs, resident), (mine, ours))
    for a, b in zip(theirs.parameters(), mine.parameters(), strict=True):
        assert differing(a.to_local(), b.to_local()) == 0
    for i, p in enumerate(theirs.parameters()):
        state = {k: v.to_local() if k != "step" else v for k, v in resident.state[p].items()}
        local = torch.nn.Parameter(p.detach().to_local())
        compare_segments(ours, i, local, type("Of", (), {"state": {local: state}}))


def sixteen(folder: Path, wrapper: str, name: str, steps: str) -> None:
    """16-bit parameters against fp32 mains kept in memory: FSDP2's shards with all three segments,
    DDP with shard_state. Then other weights are loaded behind the mains: a step at lr 0 leaves
    them, and later ones start from them (B30)."""
    dtype, fsdp = getattr(torch, name), wrapper == "fsdp"
    model = wrapped(fsdp, 6, dtype)
    ours = millpond.torch.AdamW(
        model.parameters(), lr=1e-2, scratch=scratch_of(folder), shard_state=not fsdp
    )
    mains = [torch.nn.Parameter(local_of(p).float()) for p in model.parameters()]
    resident = torch.optim.AdamW(mains, lr=1e-2)

    def train(numbers: range) -> None:
        for step in numbers:
            ours.zero_grad()
            grads_by_step(model, step, dtype)
            for p, main_of in zip(model.parameters(), mains, strict=True):
                main_of.grad = local_of(p.grad).float()
            ours.step()
            resident.step()
            for p, main_of in zip(model.parameters(), mains, strict=True):
                assert differing(local_of(p), main_of.to(dtype)) == 0, step

    last = int(steps)
    train(range(last))
    if fsdp:
        for i, main_of in enumerate(mains):
            compare_segments(ours, i, main_of, resident)
    set_model_state_dict(model, get_model_state_dict(wrapped(fsdp, 10, dtype)))
    loaded = [local_of(p).clone() for p in model.parameters()]
    with torch.no_grad():
        for weight, main_of in zip(loaded, mains, strict=True):
            same = main_of.to(dtype) == weight
            main_of.copy_(torch.where(same, main_of, weight.float()))
    for optimizer in (ours, resident):
        optimizer.param_groups[0]["lr"] = 0.0
    train(range(last, last + 1))
    for p, weight in zip(model.parameters(), loaded, strict=True):
        assert differing(local_of(p), weight) == 0
    for optimizer in (ours, resident):
        optimizer.param_groups[0]["lr"] = 1e-2
    train(range(last + 1, last + 3))


def wrapped(fsdp: bool, seed: int, dtype: torch.dtype) -> torch.nn.Module:
    model = build(seed, dtype)
    return shard(model) if fsdp else torch.nn.parallel.DistributedDataParallel(model)


def local_of(tensor: Any) -> torch.Tensor:
    return getattr(tensor, "_local_tensor", tensor).detach()


def built_before_fully_shard(folder: Path) -> None:
    mine = build(7, torch.float32)
    ours = millpond.torch.AdamW(mine.parameters(), scratch=scratch_of(folder))
    shard(mine)
    grads_by_step(mine, 0, torch.float32)
    try:
        ours.step()
    except millpond.StateError as error:
        assert "after fully_shard" in str(error)
    else:
        raise AssertionError("updates of dead parameters passed")


def made_on_meta(folder: Path) -> None:
    """Parameters without memory are refused by bind; once FSDP2's have some, the same optimizer
    trains."""
    theirs = shard(build(11, torch.float32))
    resident = torch.optim.AdamW(theirs.parameters(), lr=1e-2)
    mine = shard(build(11, torch.float32).to("meta"))
    ours = millpond.torch.AdamW(mine.parameters(), lr=1e-2, scratch=scratch_of(folder))
    try:
        ours.bind()
    except millpond.MillpondError as error:
        assert "meta tensor" in str(error) and "to_empty" in str(error), str(error)
    else:
        raise AssertionError("parameters without memory were bound")
    mine.to_empty(device=DEVICE)
    set_model_state_dict(mine, get_model_state_dict(theirs))
    train_both(3, (theirs, resident), (mine, ours))
    for a, b in zip(theirs.parameters(), mine.parameters(), strict=True):
        assert differing(a.to_local(), b.to_local()) == 0


def swapped_by_accelerate(folder: Path) -> None:
    """accelerate puts placeholders into an optimizer's groups, shards the model, and puts the new
    parameters in their places: the updates move the sharded weights."""
    theirs = shard(build(12, torch.float32))
    resident = torch.optim.AdamW(theirs.parameters(), lr=1e-2)
    mine = build(12, torch.float32)
    ours = millpond.torch.AdamW(mine.parameters(), lr=1e-2, scratch=scratch_of(folder))
    names = {p: name for name, p in mine.named_parameters()}
    (group,) = ours.param_groups
    kept = [names[p] for p in group["params"]]
    group["params"] = [torch.empty(1) for _ in kept]
    shard(mine)
    group["params"] = [dict(mine.named_parameters())[name] for name in kept]
    train_both(5, (theirs, resident), (mine, ours))
    for a, b in zip(theirs.parameters(), mine.parameters(), strict=True):
        assert differing(a.to_local(), b.to_local()) == 0


def two_meshes(folder: Path) -> None:
    """Replicate on one dimension of the mesh and Shard(0) on the other, as HSDP has them."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (1, dist.get_world_size()))

    def placed(seed: int) -> torch.Tensor:
        whole = torch.randn(17, 8, generator=torch.Generator().manual_seed(seed))
        return distribute_tensor(whole, mesh, [Replicate(), Shard(0)])

    theirs, mine = (torch.nn.Parameter(placed(0)) for _ in "12")
    resident = torch.optim.AdamW([theirs], lr=1e-2)
    ours = millpond.torch.AdamW([mine], lr=1e-2, scratch=scratch_of(folder))
    for step in range(1, 6):
        theirs.grad, mine.grad = placed(step), placed(step)
        resident.step()
        ours.step()
    assert differing(theirs.to_local(), mine.to_local()) == 0
    assert mine.to_local().shape[0] == 9 - rank()


def a_failure_on_one_rank(folder: Path) -> None:
    """Rank 1's gradient cannot be streamed: both ranks raise, none hangs, a load makes it well."""
    mine = build(8, torch.float32)
    ours = millpond.torch.AdamW(mine.parameters(), scratch=scratch_of(folder), shard_state=True)
    for step in range(3):
        grads_by_step(mine, 0, torch.float32)
        if step == 1:
            ours.save(folder / "good")
            weights = copy.deepcopy(mine.state_dict())
        if step == 2 and rank() == 1:
            bias = list(mine.parameters())[1]
            bias.grad = bias.grad.to_sparse()
        if step < 2:
            ours.step()
            continue
        try:
            ours.step()
        except millpond.MillpondError as error:
            assert ("sparse" in str(error)) == (rank() == 1), str(error)
        else:
            raise AssertionError("a failure of rank 1 passed")
    try:
        ours.step()
    except millpond.MillpondError:
        pass
    else:
        raise AssertionError("a poisoned store stepped")
    mine.load_state_dict(weights)
    ours.load(folder / "good")
    ours.zero_grad()
    grads_by_step(mine, 0, torch.float32)
    ours.step()


def save_and_load(folder: Path) -> None:
    """Resume equals no interruption, on two ranks, bf16 shards."""
    mine = shard(build(9, torch.bfloat16))
    ours = millpond.torch.AdamW(mine.parameters(), lr=1e-2, scratch=scratch_of(folder))

    def train(model: Any, optimizer: Any, steps: range) -> None:
        for step in steps:
            optimizer.zero_grad()
            grads_by_step(model, step, torch.bfloat16)
            optimizer.step()

    train(mine, ours, range(4))
    ours.save(folder / "saved")
    state = copy.deepcopy(ours.state_dict())
    train(mine, ours, range(4, 8))
    other = shard(build(10, torch.bfloat16))
    again = millpond.torch.AdamW(other.parameters(), lr=1e-2, scratch=scratch_of(folder))
    again.load_state_dict(state)
    again.load(folder / "saved")
    train(other, again, range(4, 8))
    for a, b in zip(mine.parameters(), other.parameters(), strict=True):
        assert differing(a.to_local(), b.to_local()) == 0


if __name__ == "__main__":
    main(
        {
            f.__name__: f
            for f in (
                ddp, sixteen, fsdp_fp32, built_before_fully_shard, made_on_meta,
                a_failure_on_one_rank, save_and_load, loop, swapped_by_accelerate, two_meshes,
            )
        }
    )  # fmt: skip
