"""ARCHITECTURE.md's table of Megatron's names, against the cores that are installed."""

from __future__ import annotations

import os
from pathlib import Path

import core_names
import pytest
import ranks
from millpond.megatron.readers import PREFIXES, READERS
from test_training import need

RELEASES = ("0.10.0", "0.13.1", "0.15.3", "0.16.1", "0.19.2")


def test_the_table_lists_every_name_for_every_release() -> None:
    table = core_names.documented()
    assert tuple(table) == RELEASES
    for names in table.values():
        assert tuple(names) == core_names.NAMES


def difference(release: str, wanted: str) -> list[str]:
    """What the installed core `release` has otherwise than the table's column `wanted`; printed."""
    core = ranks.core_path(release)
    assert core is not None
    there, written = core_names.names_in(core), core_names.documented()[wanted]
    lines = [
        f"{name}: core {release} {'has it' if there[name] else 'has it not'}, the table's column "
        f"{wanted} says {'yes' if written[name] else '-'}"
        for name in core_names.NAMES
        if there[name] != written[name]
    ]
    print("\n".join(lines) or f"core {release} is the table's column {wanted}")
    return lines


@pytest.mark.parametrize("release", RELEASES)
def test_the_table_is_what_the_core_has(release: str) -> None:
    need(release)
    assert difference(release, release) == []


@pytest.mark.parametrize("release", RELEASES)
def test_every_method_on_mains_is_bound_or_refused_or_reads_none(release: str) -> None:
    """Reading a main ends the process: a method that a new release adds must be looked at."""
    need(release)
    core = ranks.core_path(release)
    assert core is not None
    found = core_names.methods_on_mains(core)
    assert found >= {"get_parameter_state_dp_zero", "_copy_main_params_to_model_params"}
    known = {*core_names.BOUND, *core_names.HARMLESS, *READERS}
    assert {name for name in found if name not in known and not name.startswith(PREFIXES)} == set()


def test_a_core_that_is_not_in_the_table_is_shown_beside_the_newest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The next release: what to look at is printed (pytest -s)."""
    base = Path(os.environ.get("MILLPOND_MEGATRON", "") or "/nowhere")
    others = [path.name for path in base.glob("0.*") if path.name not in RELEASES]
    for release in [*others, *(r for r in RELEASES[-1:] if ranks.core_path(r))]:
        difference(release, RELEASES[-1])
        assert RELEASES[-1] in capsys.readouterr().out
