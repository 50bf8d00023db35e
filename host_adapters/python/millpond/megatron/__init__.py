"""Streamed optimizer state for unpatched Megatron-core: one call before the optimizer is built.

    import millpond.megatron
    millpond.megatron.enable(scratch="/mnt/nvme/scratch")
    optimizer = get_megatron_optimizer(config, model)

From then on every DistributedOptimizer that Megatron builds keeps its mains and moments in
libmillpond.so's store; gradients, clipping, loss scaling and gathers stay Megatron's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import abi
from ..errors import StateError
from .construction import Wrapped
from .session import Session

_active: tuple[Session, Wrapped] | None = None


def enable(arguments: Any = None, *, exact: str = "require", **options: Any) -> Session:
    """Wraps Megatron's optimizer classes. `arguments`: Megatron's parsed arguments, read for what
    the guard must know; `options`: the runtime's (README), `scratch` is required. `exact`:
    "require" an arithmetic with the inner optimizer's bits, or "prefer" one, or "off".

    Before the optimizer is built, on every rank. Not collective."""
    global _active
    if _active is not None:
        raise StateError("millpond.megatron is enabled already: disable() first", code=abi.E_STATE)
    local = {"local_rank": "LOCAL_RANK", "local_size": "LOCAL_WORLD_SIZE"}
    found = {key: int(os.environ[name]) for key, name in local.items() if name in os.environ}
    if len(found) == 2:
        options = found | options
    session = Session(options, arguments, exact)
    _active = session, Wrapped(session)
    return session


def disable() -> None:
    """Megatron's own classes again; stores and scratch files of this session go."""
    global _active
    if _active is not None:
        session, wrapped = _active
        _active = None
        wrapped.restore()
        session.close()


@contextmanager
def streamed(arguments: Any = None, **options: Any) -> Iterator[Session]:
    """enable and disable around a block."""
    session = enable(arguments, **options)
    try:
        yield session
    finally:
        disable()


__all__ = ["Session", "disable", "enable", "streamed"]
