"""ARCHITECTURE.md's table of Megatron's names, against the cores that are installed."""

from __future__ import annotations

import core_names
import pytest
import ranks
from test_training import need

RELEASES = ("0.10.0", "0.13.1", "0.15.3", "0.16.1")


def test_the_table_lists_every_name_for_every_release() -> None:
    table = core_names.documented()
    assert tuple(table) == RELEASES
    for names in table.values():
        assert tuple(names) == core_names.NAMES


@pytest.mark.parametrize("release", RELEASES)
def test_the_table_is_what_the_core_has(release: str) -> None:
    need(release)
    core = ranks.core_path(release)
    assert core is not None
    there, written = core_names.names_in(core), core_names.documented()[release]
    for name in core_names.NAMES:
        if there[name] != written[name]:
            print(f"{name}: core {release} {'has it' if there[name] else 'has it not'}")
    assert there == written
