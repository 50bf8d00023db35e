"""Fixtures of the tests that drive the built plugin. Its path comes in MILLPOND_PLUGIN."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from millpond_callbacks import Callbacks
from millpond_host import Plugin, Runtime


@pytest.fixture(scope="session")
def plugin() -> Plugin:
    path = os.environ.get("MILLPOND_PLUGIN")
    if not path:
        pytest.skip("MILLPOND_PLUGIN does not name a libmillpond.so")
    return Plugin(path)


@pytest.fixture
def make_runtime(plugin: Plugin, tmp_path: Any) -> Iterator[Callable[..., Runtime]]:
    """Runtimes with scratch files below the test's directory; destroyed at its end."""
    made: list[Runtime] = []

    def make(callbacks: Callbacks | None = None, **options: Any) -> Runtime:
        scratch = tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        defaults = {
            "scratch": str(scratch),
            "host_memory_bytes": 64 << 20,
            "tile_elements": 65536,
            "update_threads": 2,
            "log_level": "warning",
        }
        made.append(Runtime(plugin, defaults | options, callbacks))
        return made[-1]

    yield make
    for runtime in made:
        if runtime.handle:
            runtime.destroy()
