"""Ctrl-C while the plugin works.

A KeyboardInterrupt that Python raises inside a callback called from C is lost. So while a call is
on its way SIGINT only counts; what was begun is finished, and then the former handler is called:
KeyboardInterrupt arrives once, at a place where everything is whole.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]


class Interrupts:
    """What is counted in the present outermost `held`. Main thread only."""

    def __init__(self) -> None:
        self.depth = 0
        self.count = 0
        self.cancel_at = 2

    def cancelled(self) -> bool:
        return self.depth > 0 and self.count >= self.cancel_at

    @contextmanager
    def held(self, cancel_at: int) -> Iterator[None]:
        """SIGINT waits until the outermost block is left. From its `cancel_at`-th on, the plugin is
        told to give up what it is doing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        if self.depth:
            self.depth += 1
            try:
                yield
            finally:
                self.depth -= 1
            return
        former = signal.getsignal(signal.SIGINT)
        if not callable(former):  # ignored, default, or installed from C: not ours to hold back
            yield
            return
        self.count, self.cancel_at = 0, cancel_at
        # `former` may raise inside signal.signal, as this begins and as it ends: depth is 0 then.
        signal.signal(signal.SIGINT, self._note)
        try:
            self.depth = 1
            yield
        finally:
            self.depth = 0
            signal.signal(signal.SIGINT, former)
            if self.count:
                self.count = 0
                former(signal.SIGINT, None)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1


INTERRUPTS = Interrupts()
