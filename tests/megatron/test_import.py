"""Which order of parameter groups the files of the Python store are read in. They do not say it:
the sizes of their entries do, or nothing does. The files are written here."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from millpond import CheckpointError
from millpond.megatron.layout import Shard
from millpond.megatron.reference import orders_of, saved_in

PAGE = 4096


def run_of(*groups: tuple[float, list[int]]) -> Any:
    """A run's optimizer, of which an import looks at the shards and groups alone: for each group
    its wd_mult and its shards' numbers of elements, all in one bucket."""
    shards = []
    for group, (_, numels) in enumerate(groups):
        for numel in numels:
            half, main = torch.zeros(numel, dtype=torch.bfloat16), torch.zeros(numel)
            key, flat = f"p{len(shards)}", (0, numel)
            shards.append(Shard(key, group, half, main, half, flat, (numel,), (0,), 0))
    param_groups = [{"wd_mult": decay, "lr_mult": 1.0} for decay, _ in groups]
    return SimpleNamespace(shards=shards, inner=SimpleNamespace(param_groups=param_groups))


def write(directory: Path, entries: list[int], steps: list[int]) -> Path:
    """A store with one bucket: three segments of the entries, each filled up to whole pages."""
    pages = sum(-(-numel * 4 // PAGE) for numel in entries)
    (directory / "bucket00000.bin").write_bytes(b"\0" * (3 * pages * PAGE))
    bucket = {"entry_numels": entries, "steps": steps, "file": "bucket00000.bin"}
    (directory / "manifest.json").write_text(json.dumps({"buckets": [bucket]}))
    return directory


def test_orders_that_a_saver_may_have_had() -> None:
    decayed, others = {"wd_mult": 1.0, "lr_mult": 1.0}, {"wd_mult": 0.0, "lr_mult": 1.0}
    assert orders_of([decayed, others]) == [[0, 1]]  # core 0.16 and newer
    assert orders_of([others, decayed]) == [[0, 1], [1, 0]]
    assert orders_of([others, decayed | {"is_decoupled_lr": True}]) == [[0, 1]]  # not known


@pytest.mark.parametrize(
    ("saved", "steps", "first"),
    [([7, 5, 5], [4, 3], 2), ([5, 5, 7], [3, 4], 0)],  # 0.16's order, and the run's own
)
def test_the_order_is_the_one_that_the_sizes_fit(
    tmp_path: Path, saved: list[int], steps: list[int], first: int
) -> None:
    run = run_of((0.0, [5, 5]), (1.0, [7]))
    found = saved_in(run, write(tmp_path, saved, steps), torch.float32)
    assert found.entries[0] == first
    assert found._steps == {0: 3, 1: 4}  # the counter of each group


def test_two_orders_that_fit_are_refused(tmp_path: Path) -> None:
    """Read in the wrong one, the moments of one group would go to the other, without a sign."""
    run = run_of((0.0, [6]), (1.0, [6]))
    with pytest.raises(CheckpointError, match="fit two orders of parameter groups"):
        saved_in(run, write(tmp_path, [6, 6], [3, 3]), torch.float32)
    newer = run_of((1.0, [6]), (0.0, [6]))  # core 0.16 and newer has that store's order
    assert saved_in(newer, tmp_path, torch.float32).entries == [0, 1]


def test_no_order_that_fits_and_a_file_cut_short_are_refused(tmp_path: Path) -> None:
    run = run_of((0.0, [5, 5]), (1.0, [7]))
    with pytest.raises(CheckpointError, match="the layout is another"):
        saved_in(run, write(tmp_path, [5, 7, 5], [3, 3]), torch.float32)
    whole = write(tmp_path, [7, 5, 5], [3, 3]) / "bucket00000.bin"
    whole.write_bytes(whole.read_bytes()[:-PAGE])
    with pytest.raises(CheckpointError, match="it is not whole"):
        saved_in(run, tmp_path, torch.float32)
