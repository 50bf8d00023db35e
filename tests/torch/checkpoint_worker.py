"""What each process of test_checkpoint.py does. Works with any number of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import millpond
import millpond.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from processes import main
from ranks_worker import build, grads_by_step, scratch_of, shard
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from twins import differing


def two(dtype: torch.dtype) -> Any:
    """Parameters of 17 x 8 and of 1 x 17: of the second the last of several ranks has nothing."""
    torch.manual_seed(1)
    layers = torch.nn.Linear(8, 17, bias=False), torch.nn.Linear(17, 1, bias=False)
    return shard(torch.nn.Sequential(*layers).to(dtype))


def wanted_moments(shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """fp32 with random low bits, another constant in each row."""
    generator = torch.Generator().manual_seed(4)
    rows = torch.arange(1.0, 1.0 + shape[0])[:, None]
    return {
        name: (rows + torch.rand(shape, generator=generator) * 1e-3) * scale
        for name, scale in (("exp_avg", 1.0), ("exp_avg_sq", 0.01))
    }


def plain_state(kind: str, parameter: Any) -> dict[str, Any]:
    from torch.distributed.tensor import distribute_tensor

    state: dict[str, Any] = {"step": torch.tensor(5.0)}
    for name, value in wanted_moments(tuple(parameter.shape)).items():
        sharded = distribute_tensor(value, parameter.device_mesh, parameter.placements)
        state[name] = {"dtensor": sharded, "full": value, "local": sharded.to_local()}[kind]
    return state


FORMS = ("dtensor", "local", "full_local", "set", "flattened", "full", "broadcast", "dcp")


def forms(folder: Path) -> None:
    """A plain AdamW's moments in every form in which they can come: equal bits and counters."""
    for dtype in (torch.float32, torch.bfloat16):
        for form in FORMS:
            model = two(dtype)
            optimizer = millpond.torch.AdamW(
                model.parameters(), lr=1e-2, scratch=scratch_of(folder)
            )
            give(form, model, optimizer, folder / f"plain_{dtype}")
            for i, parameter in enumerate(model.parameters()):
                check_moments(optimizer, i, parameter, (form, dtype))
            optimizer.close()


def give(form: str, model: Any, optimizer: Any, path: Path) -> None:
    groups = torch.optim.AdamW(model.parameters(), lr=1e-3).state_dict()["param_groups"]
    named = [dict(groups[0], params=[name for name, _ in model.named_parameters()])]

    def states(kind: str) -> dict[str, Any]:
        return {name: plain_state(kind, p) for name, p in model.named_parameters()}

    if form in ("dtensor", "local", "full_local"):
        numbered = dict(enumerate(states(form.removesuffix("_local")).values()))
        optimizer.load_state_dict({"state": numbered, "param_groups": groups})
    elif form == "set":
        state = {"state": states("dtensor"), "param_groups": named}
        set_optimizer_state_dict(model, optimizer, state)
    elif form == "flattened":
        flat: dict[str, Any] = {}
        for name, state in states("dtensor").items():
            flat |= {f"state.{name}.{k}": v for k, v in state.items()}
            flat |= {f"param_groups.{name}.{k}": v for k, v in named[0].items() if k != "params"}
        options = StateDictOptions(flatten_optimizer_state_dict=True)
        set_optimizer_state_dict(model, optimizer, flat, options=options)
    elif form in ("full", "broadcast"):
        state = {"state": states("full"), "param_groups": named}
        everywhere = form == "full" or dist.get_rank() == 0
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=form == "broadcast")
        set_optimizer_state_dict(model, optimizer, state if everywhere else {}, options=options)
    else:
        state = {"state": states("dtensor"), "param_groups": named}
        dcp.save({"optimizer": state}, checkpoint_id=path)
        millpond.torch.import_dcp(path, model, optimizer)


def check_moments(optimizer: Any, i: int, parameter: Any, where: Any) -> None:
    store, bound = optimizer._streamed.store, optimizer.binding
    first = bound.placements[i].box_offset[0]
    for segment, value in enumerate(wanted_moments(tuple(parameter.shape)).values(), 1):
        mine = value[first : first + parameter.to_local().shape[0]].reshape(-1)
        got = torch.empty(mine.numel())
        if mine.numel():
            store.read(i, segment, 0, mine.numel(), got.data_ptr())
        assert differing(got, mine) == 0, (where, i, segment)
    assert store.counter(i) == 5 == int(optimizer.state[parameter]["step"]), (where, i)


def setup(folder: Path, dtype: torch.dtype, seed: int) -> tuple[Any, Any]:
    model = shard(build(seed, dtype))
    return model, millpond.torch.AdamW(model.parameters(), lr=1e-2, scratch=scratch_of(folder))


def train(model: Any, optimizer: Any, steps: range, dtype: torch.dtype) -> None:
    for step in steps:
        optimizer.zero_grad()
        grads_by_step(model, step, dtype)
        optimizer.step()


def pair(folder: Path) -> None:
    """save, async_save and load of weights and state as one; resume equals no interruption."""
    for dtype in (torch.float32, torch.bfloat16):
        for way in ("save", "async_save"):
            place = folder / f"{way}_{dtype}"
            model, optimizer = setup(folder, dtype, 2)
            train(model, optimizer, range(3), dtype)
            millpond.torch.save(place, model, optimizer, epoch=1)
            train(model, optimizer, range(3, 5), dtype)
            if way == "save":
                millpond.torch.save(place, model, optimizer, epoch=2)
            else:
                under_way = millpond.torch.async_save(place, model, optimizer, epoch=2)
            train(model, optimizer, range(5, 8), dtype)
            again, resumed = setup(folder, dtype, 3)
            if way == "async_save":
                assert millpond.torch.load(place, again, resumed, epoch=0) == {"epoch": 1}
                under_way.commit()
            assert millpond.torch.load(place, again, resumed, epoch=0) == {"epoch": 2}
            train(again, resumed, range(5, 8), dtype)
            for a, b in zip(model.parameters(), again.parameters(), strict=True):
                assert differing(a.to_local(), b.to_local()) == 0
            dist.barrier()
            assert len(list(place.glob("weights-*"))) == 1
            optimizer.close()
            resumed.close()


def marker(folder: Path) -> None:
    """A plain dcp.save holds a marker and no bytes: a step after its resume is an error on every
    rank, until the bytes come."""
    dtype = torch.bfloat16
    model, optimizer = setup(folder, dtype, 2)
    train(model, optimizer, range(3), dtype)
    dcp.save(everything_of(model, optimizer), checkpoint_id=folder / "plain")
    optimizer.save(folder / "bytes")
    train(model, optimizer, range(3, 5), dtype)
    again, resumed = setup(folder, dtype, 3)
    state = everything_of(again, resumed)
    dcp.load(state, checkpoint_id=folder / "plain")
    set_model_state_dict(again, state["model"])
    set_optimizer_state_dict(again, resumed, state["optimizer"])
    grads_by_step(again, 3, dtype)
    before = [p.to_local().clone() for p in again.parameters()]
    try:
        resumed.step()
    except millpond.StateError as error:
        assert "of step 3 and holds no moments" in str(error), str(error)
    else:
        raise AssertionError("resumed with moments of zero")
    for p, kept in zip(again.parameters(), before, strict=True):
        assert differing(p.to_local(), kept) == 0
    resumed.load(folder / "bytes")
    train(again, resumed, range(3, 5), dtype)
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        assert differing(a.to_local(), b.to_local()) == 0


def leave(folder: Path) -> None:
    """export_dcp into a plain AdamW: it goes on with the same bits, and so does one of ours that
    imports what was exported."""
    dtype = torch.float32
    model, optimizer = setup(folder, dtype, 2)
    train(model, optimizer, range(3), dtype)
    millpond.torch.export_dcp(folder / "plain", model, optimizer)
    weights = get_model_state_dict(model)
    sides = [(model, optimizer)]
    for back in (False, True):
        other = shard(build(3, dtype))
        set_model_state_dict(other, weights)
        if back:
            again = millpond.torch.AdamW(other.parameters(), lr=1e-2, scratch=scratch_of(folder))
            millpond.torch.import_dcp(folder / "plain", other, again)
        else:
            again = torch.optim.AdamW(other.parameters(), lr=0.5)
            state = {"optimizer": get_optimizer_state_dict(other, again)}
            dcp.load(state, checkpoint_id=folder / "plain")
            set_optimizer_state_dict(other, again, state["optimizer"])
            assert again.param_groups[0]["lr"] == 1e-2
            assert "millpond" not in again.param_groups[0]
        sides.append((other, again))
    for one in sides:
        train(*one, range(3, 5), dtype)
    for other, _ in sides[1:]:
        for a, b in zip(model.parameters(), other.parameters(), strict=True):
            assert differing(a.to_local(), b.to_local()) == 0


def everything_of(model: Any, optimizer: Any) -> dict[str, Any]:
    return {
        "model": get_model_state_dict(model),
        "optimizer": get_optimizer_state_dict(model, optimizer),
    }


def plain_into_handles(folder: Path) -> None:
    """A plain AdamW's DCP directory, loaded into our handles with dcp.load: the moments have no
    place there. An error, not a step from zeros."""
    theirs = two(torch.float32)
    resident = torch.optim.AdamW(theirs.parameters(), lr=1e-2)
    theirs(torch.ones(2, 8)).sum().backward()
    resident.step()
    dcp.save(everything_of(theirs, resident), checkpoint_id=folder / "plain")
    model = two(torch.float32)
    optimizer = millpond.torch.AdamW(model.parameters(), lr=1e-2, scratch=scratch_of(folder))
    state = everything_of(model, optimizer)
    try:
        dcp.load(state, checkpoint_id=folder / "plain")
        set_optimizer_state_dict(model, optimizer, state["optimizer"])
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
    except dcp.CheckpointException as error:
        assert "Size mismatch" in str(error) and "exp_avg" in str(error), str(error)
    else:
        raise AssertionError("moments were dropped without a word")


def write_pair(folder: Path, shared: str) -> None:
    model, optimizer = setup(folder, torch.bfloat16, 2)
    train(model, optimizer, range(3), torch.bfloat16)
    millpond.torch.save(Path(shared) / "resharded", model, optimizer)
    whole = {n: p.full_tensor() for n, p in get_model_state_dict(model).items()}
    plain = optimizer.plain_state_dict()["state"]
    moments = {
        i: {k: v.full_tensor() for k, v in s.items() if k != "step"} for i, s in plain.items()
    }
    if dist.get_rank() == 0:
        torch.save((whole, moments), Path(shared) / "whole.pt")


def read_pair(folder: Path, shared: str) -> None:
    """On another number of ranks."""
    model, optimizer = setup(folder, torch.bfloat16, 6)
    millpond.torch.load(Path(shared) / "resharded", model, optimizer)
    whole, moments = torch.load(Path(shared) / "whole.pt")
    for name, value in get_model_state_dict(model).items():
        assert torch.equal(value.full_tensor(), whole[name]), name
    plain = optimizer.plain_state_dict()["state"]
    for i, state in moments.items():
        assert int(plain[i]["step"]) == 3
        for name, value in state.items():
            assert torch.equal(plain[i][name].full_tensor(), value), (i, name)
    train(model, optimizer, range(3, 4), torch.bfloat16)


if __name__ == "__main__":
    main(
        {
            f.__name__: f
            for f in (forms, pair, marker, leave, plain_into_handles, write_pair, read_pair)
        }
    )
