"""Checkpoints of streamed state through Megatron's dist_checkpointing, on gloo ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_training import NEWEST, run


@pytest.mark.parametrize(
    ("release", "case", "scenarios"),
    [
        # B25 B28 R01 R02: steps and moments come back, also into an optimizer that has steps.
        (NEWEST, "gpt", ["sync", "background", "commit_fails"]),
    ],
)
def test_B25_B28_R01_R02_checkpoints(
    release: str, case: str, scenarios: list[str], tmp_path: Path
) -> None:
    output = run(release, "run_checkpoint.py", str(tmp_path), case, *scenarios)
    for scenario in scenarios:
        assert f"{scenario}: good" in output
