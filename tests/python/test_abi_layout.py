"""The ctypes mirror of the structs against the golden layout."""

import ctypes
import re

import millpond_structs as c
import pytest
from millpond_shards import FEATURES

GOLDEN = FEATURES.read_text()


def golden_struct(name: str) -> tuple[int, list[tuple[int, int, str]]]:
    match = re.search(rf"^struct {name} size (\d+) align \d+\n((?:  .*\n)+)", GOLDEN, re.M)
    assert match, f"{name} is not in the golden layout"
    fields = [line.split()[:3] for line in match[2].splitlines()]
    return int(match[1]), [(int(offset), int(size), field) for offset, size, field in fields]


@pytest.mark.parametrize("name", c.GOLDEN_NAMES)
def test_struct(name: str) -> None:
    kind = c.GOLDEN_NAMES[name]
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
