"""Millpond: Adam's optimizer state on NVMe, streamed inside the step.

`millpond.torch` has the optimizers for PyTorch. This package is the client of libmillpond.so that
the adapters share: Plugin, Runtime, Store, errors. `python -m millpond` is the command line.
"""

from .callbacks import Callbacks
from .errors import (
    CancelledError,
    CheckpointError,
    ForkedError,
    MillpondError,
    NoSpaceError,
    OptionError,
    PoisonedError,
    Refusal,
    RefusedError,
    StateError,
)
from .plugin import Plugin, default_plugin, find_plugin
from .runtime import Runtime, Store

__version__ = "0.1.0"

__all__ = [
    "Callbacks",
    "CancelledError",
    "CheckpointError",
    "ForkedError",
    "MillpondError",
    "NoSpaceError",
    "OptionError",
    "Plugin",
    "PoisonedError",
    "Refusal",
    "RefusedError",
    "Runtime",
    "StateError",
    "Store",
    "default_plugin",
    "find_plugin",
]
