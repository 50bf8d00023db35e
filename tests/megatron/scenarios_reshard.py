"""On a rank: a checkpoint of one number of ranks, loaded by another. Every value of every
parameter is compared with what the saving run had, put together from its ranks' parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import millpond.megatron
import torch
import torch.distributed as dist
from cases import CASES
from millpond import MillpondError
from saving import RANK, directory, load, options, refused, same, save, segments_of, train
from training import Run


def part(shard: Any, whole: torch.Tensor) -> torch.Tensor:
    """The shard's elements of a whole parameter."""
    box = whole
    for dim, (begin, size) in enumerate(zip(shard.box_offset, shard.parameter.shape, strict=True)):
        box = box.narrow(dim, begin, size)
    return box.reshape(-1)[shard.flat[0] : shard.flat[1]]


def rate_of(group: dict[str, Any]) -> float:
    """Another one for each group, whatever its place: releases order them otherwise."""
    return 0.01 + 0.001 * float(group.get("wd_mult", group.get("pre_wd_mult")))


def written(case: str, base: Path) -> None:
    """Saves after 5 steps, with the whole parameters' state beside the checkpoint."""
    with millpond.megatron.streamed(**options()) as session:
        run = train(case, 5)
        for group in run.optimizer.param_groups:
            group["lr"] = rate_of(group)
        parts = []
        for member in session.members():
            for index, shard in enumerate(member.shards):
                place = (shard.key, shard.global_shape, shard.box_offset,
                         tuple(shard.parameter.shape), shard.flat)  # fmt: skip
                parts.append((place, segments_of(member, index)))
        everyone: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, parts)
        wholes: dict[str, dict[str, torch.Tensor]] = {}
        for (key, whole_shape, offset, shape, flat), segments in [p for ps in everyone for p in ps]:
            for segment, values in segments.items():
                nothing = torch.full(whole_shape, torch.nan)
                whole = wholes.setdefault(key, {}).setdefault(segment, nothing)
                box = whole[tuple(slice(b, b + n) for b, n in zip(offset, shape, strict=True))]
                local = box.reshape(-1).clone()
                local[flat[0] : flat[1]] = values
                box.copy_(local.view(shape))
        for key, segments in wholes.items():
            for segment, whole in segments.items():
                assert not whole.isnan().any(), (key, segment, "no rank has some elements")
        save(run, directory(base, f"written_{case}"))
        if RANK == 0:
            torch.save(wholes, base / f"written_{case}.pt")


def refused_by_others(case: str, base: Path, saved_by: str, *words: str) -> None:
    """A gated layer's rows have another order for each size of tensor parallelism, and the format
    knows boxes only; experts are in a member of their own or not. Every rank refuses it in these
    words, and no store has changed."""
    with millpond.megatron.streamed(**options()) as session:
        run = train(case, 1)
        told = refused(MillpondError, words[0], lambda: load(run, base / f"written_{saved_by}"))
        assert all(word in told for word in words), told
        for member in session.members():
            assert {member.store.counter(i) for i in range(len(member.shards))} == {1}


def read_by_others(case: str, base: Path, saved_by: str, strict: str = "") -> None:
    """`saved_by`: the case that `written` trained; `strict`: Megatron's handling of keys."""
    wholes = torch.load(base / f"written_{saved_by}.pt")
    with millpond.megatron.streamed(**options()) as session:
        run = Run.start(CASES[case], seed=99)
        run.advance(1)
        load(run, base / f"written_{saved_by}", **({"strict": strict} if strict else {}))
        for group in run.optimizer.param_groups:
            assert group["lr"] == rate_of(group), "another group's rate"
        values = 0
        for member in session.members():
            assert member.steps == 5
            for index, shard in enumerate(member.shards):
                assert member.store.counter(index) == 5
                for segment, got in segments_of(member, index).items():
                    wanted = part(shard, wholes[shard.key][segment])
                    assert same(got, wanted), (shard.key, segment)
                    values += got.numel()
        total = torch.tensor(values)
        dist.all_reduce(total)
        assert int(total) >= sum(w.numel() for s in wholes.values() for w in s.values())
        run.advance(2)
        assert all(torch.isfinite(torch.tensor(float.fromhex(loss))) for loss in run.losses)
