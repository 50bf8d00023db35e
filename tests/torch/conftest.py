"""Fixtures of the tests of millpond.torch. The plugin is the one that MILLPOND_PLUGIN names, else
the installed package's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed for this Python")
millpond = pytest.importorskip("millpond", reason="the package is not on this Python's path")
try:
    millpond.find_plugin()
except millpond.MillpondError as error:
    pytest.skip(str(error), allow_module_level=True)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """An empty scratch directory."""
    made = tmp_path / "scratch"
    made.mkdir()
    return made


@pytest.fixture
def lone_group() -> Iterator[Callable[[str], None]]:
    """Starts a process group of this process alone, with a backend."""
    import torch.distributed as dist

    yield lambda backend: dist.init_process_group(
        backend, store=dist.HashStore(), rank=0, world_size=1
    )
    if dist.is_initialized():
        dist.destroy_process_group()
