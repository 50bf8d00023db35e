"""What takes too long for every run: the release between, 40 steps, other numbers of ranks, tensor
parallelism together with experts on four ranks. `tests/campaign.sh megatron`."""

from __future__ import annotations

from pathlib import Path

import pytest
import ranks
from test_checkpoint import SCENARIOS, killed_in_a_save
from test_training import GPT, NEWEST, SMALL, run

BETWEEN = "0.15.3"
ALL = f"{SMALL},{GPT},gpt_tp2_experts"


@pytest.mark.parametrize("release", [BETWEEN, NEWEST])
def test_40_steps_have_the_bits_of_the_resident_run(release: str) -> None:
    output = run(release, "run_training.py", "40", ALL)
    for case in ALL.split(","):
        assert f"{case}: 40 steps" in output


def test_four_ranks_have_the_bits_of_the_resident_run() -> None:
    cases = "net_overlapped,net_chunks_overlapped,gpt,gpt_tp2,gpt_experts,gpt_tp2_experts"
    output = run(NEWEST, "run_training.py", "20", cases, size=4)
    for case in cases.split(","):
        assert f"{case}: 20 steps" in output


@pytest.mark.parametrize("release", ["0.13.1", BETWEEN])
def test_checkpoints_of_older_releases(release: str, tmp_path: Path) -> None:
    killed_in_a_save(release, tmp_path)
    output = run(release, "run_checkpoint.py", str(tmp_path), *SCENARIOS)
    for scenario in SCENARIOS:
        assert f"{scenario}: good" in output


# Saved by two ranks, loaded by others: data parallelism of another size, tensor parallelism taken
# away and added, experts put together, pipeline stages joined and cut.
OTHERS = [
    ("gpt", "gpt", 1), ("gpt", "gpt", 4), ("gpt_tp2", "gpt", 1), ("gpt_tp2", "gpt", 2),
    ("gpt", "gpt_tp2", 2), ("gpt_tp2", "gpt_tp2", 4), ("gpt_experts", "gpt_experts", 4),
    ("gpt_pp2", "gpt", 1), ("gpt_pp2", "gpt", 2), ("gpt", "gpt_pp2", 2),
    ("gpt_gated_tp2", "gpt_gated_tp2", 4),
]  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("written")
    cases = ("gpt", "gpt_tp2", "gpt_experts", "gpt_experts_whole", "gpt_pp2", "gpt_gated",
             "gpt_gated_tp2")  # fmt: skip
    written = [f"{case}:written" for case in cases]
    run(NEWEST, "run_checkpoint.py", str(path), *written)
    return path


@pytest.mark.parametrize(("saved", "loaded", "size"), OTHERS)
def test_B33_other_ranks_load(base: Path, saved: str, loaded: str, size: int) -> None:
    wanted = f"{loaded}:read_by_others:{saved}"
    assert f"{wanted}: good" in run(NEWEST, "run_checkpoint.py", str(base), wanted, size=size)


GATED = "linear_fc1:--tensor-model-parallel-size that saved"
REFUSED = [
    ("gpt_gated_tp2", "gpt_gated", GATED), ("gpt_gated", "gpt_gated_tp2", GATED),
    ("gpt_experts", "gpt_experts_whole", "local_experts:--expert-model-parallel-size 1"),
    ("gpt_experts_whole", "gpt_experts", "another arrangement of optimizers"),
]  # fmt: skip


@pytest.mark.parametrize(("saved", "loaded", "words"), REFUSED)
def test_what_is_cut_otherwise_is_refused(base: Path, saved: str, loaded: str, words: str) -> None:
    wanted = f"{loaded}:refused_by_others:{saved}:{words}"
    assert f"{wanted}: good" in run(NEWEST, "run_checkpoint.py", str(base), wanted)


@pytest.mark.parametrize(("saved", "loaded"), [("0.13.1", NEWEST), (NEWEST, "0.13.1")])
def test_another_release_loads(saved: str, loaded: str, tmp_path: Path) -> None:
    """Groups are in another order there, and are matched by their keys."""
    run(saved, "run_checkpoint.py", str(tmp_path), "gpt:written")
    wanted = "gpt:read_by_others:gpt"
    assert f"{wanted}: good" in run(loaded, "run_checkpoint.py", str(tmp_path), wanted)


def test_every_release_is_there() -> None:
    for release in ("0.10.0", "0.13.1", BETWEEN, NEWEST):
        assert ranks.core_path(release) is not None, release
