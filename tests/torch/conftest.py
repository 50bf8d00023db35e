"""Fixtures of the tests of millpond.torch. The plugin's path comes in MILLPOND_PLUGIN."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed for this Python")
if not os.environ.get("MILLPOND_PLUGIN"):
    pytest.skip("MILLPOND_PLUGIN does not name a libmillpond.so", allow_module_level=True)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """An empty scratch directory; that nothing is left in it is checked at the end."""
    made = tmp_path / "scratch"
    made.mkdir()
    return made
