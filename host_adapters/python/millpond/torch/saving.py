"""A save of the streamed state that is under way."""

from __future__ import annotations

import os

from .. import abi
from ..errors import MillpondError
from ..interrupts import INTERRUPTS
from ..runtime import Store
from .ranks import Ranks


class Save:
    """Begun on construction, which is collective and returns when later steps cannot change what is
    saved. Without commit nothing counts."""

    def __init__(
        self, store: Store, ranks: Ranks, path: str | os.PathLike[str], background: bool,
        stream: abi.Stream,
    ):  # fmt: skip
        self._store, self._ranks = store, ranks
        self.save_id = store.runtime.save_begin(path, ranks.group)
        self._failure: MillpondError | None = None
        try:
            store.save(path, abi.IO_BACKGROUND if background else 0, self.save_id, stream)
        except MillpondError as failure:
            self._failure = failure  # told by commit, where all ranks are

    def progress(self) -> tuple[int, int]:
        """Bytes written, and bytes in all."""
        now = self._store.poll()
        return now.bytes_done, now.bytes_total

    def done(self) -> bool:
        """Whether this rank has written all, or failed. Never blocks."""
        return self._failure is not None or self._store.poll().state != abi.SAVE_WRITING

    def commit(self) -> None:
        """Waits for the writing; then the save counts on all ranks, or on none and all raise.
        Collective, on the thread that trains."""
        with INTERRUPTS.held(1):
            try:
                self._store.runtime.save_commit(self.save_id, self._ranks.group)
            except MillpondError as told:
                raise self._failure or told from None

    def cancel(self) -> None:
        """Gives it up; what was written is removed. The checkpoint is the one before."""
        self._store.cancel()
