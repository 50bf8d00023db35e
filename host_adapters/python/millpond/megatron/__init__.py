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
from .arguments import add_arguments, check_arguments, options_from
from .construction import Wrapped
from .session import Session

_active: tuple[Session, Wrapped] | None = None


def enable(
    arguments: Any = None,
    *,
    exact: str = "require",
    without_state: str = "error",
    **options: Any,
) -> Session:
    """Wraps Megatron's optimizer classes and its dist_checkpointing. `arguments`: Megatron's parsed
    arguments, read for what the guard must know, and for --stream-optimizer-state-*; `options`: the
    runtime's (README), which come first. `exact`: "require" an arithmetic with the inner
    optimizer's bits, or "prefer" one, or "off". `without_state`: what a load does with a checkpoint
    written before streaming: "error", or "init_from_model".

    Before the optimizer is built, on every rank. Not collective."""
    global _active
    if _active is not None:
        raise StateError("millpond.megatron is enabled already: disable() first", code=abi.E_STATE)
    local = {"local_rank": "LOCAL_RANK", "local_size": "LOCAL_WORLD_SIZE"}
    found = {key: int(os.environ[name]) for key, name in local.items() if name in os.environ}
    if len(found) == 2:
        options = found | options
    if arguments is not None:
        check_arguments(arguments)
        if "scratch" not in options:
            options = options_from(arguments) | options
    session = Session(options, arguments, exact, without_state)
    _active = session, Wrapped(session)
    session.checkpoints.hook()
    return session


def disable() -> None:
    """Megatron's own classes again; stores and scratch files of this session go."""
    global _active
    if _active is not None:
        session, wrapped = _active
        _active = None
        wrapped.restore()
        session.checkpoints.unhook()
        session.close()


def suspend(host_tier: bool = False) -> None:
    """Between steps: waits for what is in flight and gives device staging back; with `host_tier`
    the pinned host memory too. Until resume() only saves and reports work. Twice is no harm."""
    _session("suspend").suspend(host_tier)


def resume() -> None:
    """Takes the memory again. A failure leaves it suspended, to be tried again."""
    _session("resume").resume()


def _session(what: str) -> Session:
    if _active is None:
        raise StateError(f"{what}: millpond.megatron is not enabled", code=abi.E_STATE)
    return _active[0]


@contextmanager
def streamed(arguments: Any = None, **options: Any) -> Iterator[Session]:
    """enable and disable around a block."""
    session = enable(arguments, **options)
    try:
        yield session
    finally:
        disable()


__all__ = [
    "Session",
    "add_arguments",
    "check_arguments",
    "disable",
    "enable",
    "options_from",
    "resume",
    "streamed",
    "suspend",
]
