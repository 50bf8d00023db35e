"""Checkpoints, refused steps, phases and figures through Megatron's own code, on gloo ranks. Each
launch of ranks does several scenarios, since importing Megatron takes longer than most."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import ranks
from test_training import NEWEST, need, run

SCENARIOS = (
    "gpt:after_kill",
    "gpt:sync",  # B25 B28 R01 R02: counters and moments come back, also over later steps
    "gpt:cold",  # B29 B30
    "gpt_experts:sync",  # two members of a chain, other groups on every rank
    "gpt:background",
    "gpt:commit_fails",
    "gpt:refusals",
    "net:refused_beforehand",
    "gpt:phases",
    "gpt:figures",
    "net_fused:counted_in_groups",
    "net:python_store",
    "gpt_experts:in_order",
    "gpt_experts:readers",
    "net:others",
    "net:hyperparameters",  # R02 R05
    "net:passing_by",
    "gpt_pp2:frozen",
    "gpt:written",
)


def killed_in_a_save(release: str, path: Path) -> None:
    """Leaves in `path` what two ranks have left behind, one of which was killed in a save."""
    need(release)
    done = ranks.launch(release, ["run_checkpoint.py", str(path), "gpt:killed"])
    assert done[1].returncode == -signal.SIGKILL, done[1].stdout[-6000:]
    assert done[0].returncode != 0, done[0].stdout[-6000:]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoints")
    killed_in_a_save(NEWEST, path)
    return path


def test_B25_B28_B29_B30_R01_R02_on_two_ranks(base: Path) -> None:
    output = run(NEWEST, "run_checkpoint.py", str(base), *SCENARIOS)
    print(output)
    for scenario in SCENARIOS:
        assert f"{scenario}: good" in output


def test_B33_one_rank_loads_what_two_have_saved(base: Path) -> None:
    wanted = "gpt:read_by_others:gpt:raise_all"  # which wants both ranks' entries asked for
    assert f"{wanted}: good" in run(NEWEST, "run_checkpoint.py", str(base), wanted, size=1)
