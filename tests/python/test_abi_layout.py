"""The ctypes mirror of the structs against the golden layout."""

import ctypes
import re

import pytest
from millpond import abi as c
from millpond.features import FEATURES as FEATURES_OF_PACKAGE
from millpond_shards import FEATURES, known_features

# Name in abi/layout.golden -> the class here.
CLASSES = {
    "millpond_header": c.Header,
    "millpond_str": c.Str,
    "millpond_span": c.Span,
    "millpond_stream": c.Stream,
    "millpond_tensor": c.Tensor,
    "millpond_group": c.Group,
    "millpond_status": c.Status,
    "millpond_update_piece": c.UpdatePiece,
    "millpond_host_api": c.HostApi,
    "millpond_shard_pointers": c.ShardPointers,
    "millpond_bind_args": c.BindArgs,
    "millpond_group_step": c.GroupStep,
    "millpond_step_args": c.StepArgs,
    "millpond_refresh_args": c.RefreshArgs,
    "millpond_io_args": c.IoArgs,
    "millpond_step_figures": c.StepFigures,
    "millpond_plan_figures": c.PlanFigures,
    "millpond_runtime_figures": c.RuntimeFigures,
    "millpond_table_v1": c.Table,
    "millpond_ext_report": c.ExtReport,
    "millpond_ext_state": c.ExtState,
    "millpond_ext_phase": c.ExtPhase,
    "millpond_save_id": c.SaveId,
    "millpond_save_progress": c.SaveProgress,
    "millpond_ext_checkpoint": c.ExtCheckpoint,
    "millpond_identity": c.Identity,
}

GOLDEN = FEATURES.read_text()


def golden_struct(name: str) -> tuple[int, list[tuple[int, int, str]]]:
    match = re.search(rf"^struct {name} size (\d+) align \d+\n((?:  .*\n)+)", GOLDEN, re.M)
    assert match, f"{name} is not in the golden layout"
    fields = [line.split()[:3] for line in match[2].splitlines()]
    return int(match[1]), [(int(offset), int(size), field) for offset, size, field in fields]


@pytest.mark.parametrize("name", CLASSES)
def test_struct(name: str) -> None:
    kind = CLASSES[name]
    size, fields = golden_struct(name)
    assert ctypes.sizeof(kind) == size
    mirror = [(getattr(kind, f).offset, getattr(kind, f).size, f) for f, _ in kind._fields_]
    assert mirror == fields


def test_constants() -> None:
    numbers = dict(re.findall(r"^number MILLPOND_(\w+) (\d+)$", GOLDEN, re.M))
    seen = 0
    for name, value in vars(c).items():
        if re.fullmatch(r"(TYPE|E|IO|SEGMENT|STATUS)_[A-Z_]+|OK", name):
            assert int(numbers[name]) == value, name
            seen += 1
    assert seen > 30
    for name, value in {"DTYPE_FP32": c.FP32, "DTYPE_FP16": c.FP16, "DTYPE_BF16": c.BF16}.items():
        assert int(numbers[name]) == value


def test_features() -> None:
    assert list(FEATURES_OF_PACKAGE) == known_features(c.MINOR)
