"""The callbacks that a host offers, from plain Python functions.

What a function raises is kept, and raised again by the call that it made fail: a Python callback
called from C can not raise by itself. An answer is written last, so that a failure leaves the
plugin's preset.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import abi
from .interrupts import INTERRUPTS

LOG = logging.getLogger("millpond")
_LEVELS = {
    abi.LOG_ERROR: logging.ERROR,
    abi.LOG_WARNING: logging.WARNING,
    abi.LOG_INFO: logging.INFO,
    abi.LOG_DEBUG: logging.DEBUG,
}


@dataclass
class Callbacks:
    """allgather(group, send, receive, bytes) with addresses; update(piece); None: not offered.
    progress(what, done, total) returns True to cancel."""

    allgather: Callable[[abi.Group, int, int, int], None] | None = None
    update: Callable[[abi.UpdatePiece], None] | None = None
    alloc: Callable[[int, int, abi.Stream], int] | None = None
    free: Callable[[int, int, abi.Stream], None] | None = None
    release_main: Callable[[str, list[int]], None] | None = None
    copy_main: Callable[[str, int, int, int, int], None] | None = None
    progress: Callable[[str, int, int], bool] | None = None
    raised: BaseException | None = field(default=None, init=False)

    def take_raised(self) -> BaseException | None:
        raised, self.raised = self.raised, None
        return raised

    def api(self) -> abi.HostApi:
        """Borrowed by the runtime until its destroy; keeps the callables alive."""
        api = abi.HostApi(header=abi.header_of(abi.HostApi, abi.TYPE_HOST_API))
        api.log = abi.LogFn(_log)
        api.progress = abi.ProgressFn(self._progress)
        guarded = self._guarded
        if allgather := self.allgather:
            api.allgather = abi.AllgatherFn(
                lambda _, group, send, receive, size, ok: guarded(
                    ok, allgather, group, send, receive, size
                )
            )
        if update := self.update:
            api.update = abi.UpdateFn(lambda _, piece, ok: guarded(ok, update, piece.contents))
        if (alloc := self.alloc) and (free := self.free):

            def allocate(_: Any, size: int, align: int, stream: Any, memory: Any, ok: Any) -> None:
                memory[0] = guarded(ok, alloc, size, align, stream)

            api.alloc = abi.AllocFn(allocate)
            api.free = abi.FreeFn(
                lambda _, memory, size, stream, ok: guarded(ok, free, memory, size, stream)
            )
        if release := self.release_main:
            api.release_main = abi.ReleaseMainFn(
                lambda _, uid, ids, count, ok: guarded(ok, release, uid.text(), ids[:count])
            )
        if copy := self.copy_main:
            api.copy_main_to_model = abi.CopyMainFn(
                lambda _, uid, shard, begin, main, count, ok: guarded(
                    ok, copy, uid.text(), shard, begin, main, count
                )
            )
        return api

    def _guarded(self, answer: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            result = function(*arguments)
        except BaseException as raised:
            self.raised = raised
            return None
        answer[0] = abi.OK
        return result

    def _progress(self, _: Any, what: Any, done: int, total: int, cancel: Any) -> None:
        stop = INTERRUPTS.cancelled()
        if self.progress:
            answered = [abi.E_CALLBACK]
            stop |= bool(self._guarded(answered, self.progress, what.text(), done, total))
            stop |= answered[0] != abi.OK
        cancel[0] = int(stop)


def _log(_context: Any, level: int, line: Any) -> None:
    try:
        LOG.log(_LEVELS.get(level, logging.INFO), "%s", line.text())
    except Exception:  # a broken log handler is no failure of the step
        logging.getLogger().debug("a log handler failed", exc_info=True)
