"""The callbacks that a host offers, from plain Python functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond import abi as c


@dataclass
class Callbacks:
    """What the host offers. One that raises leaves its answer at the plugin's preset: a failure."""

    alloc: Callable[[int, int, c.Stream], int | None] | None = None
    free: Callable[[int, int, c.Stream], None] | None = None
    update: Callable[[Any], None] | None = None
    release_main: Callable[[str, list[int]], None] | None = None
    copy_main: Callable[[str, int, int, Any, int], None] | None = None
    allgather: Callable[[c.Group, int, int, int], None] | None = None
    log: Callable[[int, str], None] | None = None
    progress: Callable[[str, int, int], int] | None = None

    def api(self) -> c.HostApi:
        api = c.HostApi(header=c.header_of(c.HostApi, c.TYPE_HOST_API))

        if self.alloc:

            @c.AllocFn
            def alloc(_context, size, alignment, stream, memory, answer):
                memory[0] = self.alloc(size, alignment, stream)
                answer[0] = c.OK

            api.alloc = alloc
        if self.free:

            @c.FreeFn
            def free(_context, memory, size, stream, answer):
                self.free(memory, size, stream)
                answer[0] = c.OK

            api.free = free
        if self.update:

            @c.UpdateFn
            def update(_context, piece, answer):
                self.update(piece.contents)
                answer[0] = c.OK

            api.update = update
        if self.release_main:

            @c.ReleaseMainFn
            def release_main(_context, uid, ids, count, answer):
                self.release_main(uid.text(), ids[:count])
                answer[0] = c.OK

            api.release_main = release_main
        if self.copy_main:

            @c.CopyMainFn
            def copy_main(_context, uid, shard, begin, main, count, answer):
                self.copy_main(uid.text(), shard, begin, main, count)
                answer[0] = c.OK

            api.copy_main_to_model = copy_main
        if self.allgather:

            @c.AllgatherFn
            def allgather(_context, group, send, receive, size, answer):
                self.allgather(group, send, receive, size)
                answer[0] = c.OK

            api.allgather = allgather
        if self.log:

            @c.LogFn
            def log(_context, level, line):
                self.log(level, line.text())

            api.log = log
        if self.progress:

            @c.ProgressFn
            def progress(_context, what, done, total, cancel):
                cancel[0] = self.progress(what.text(), done, total)

            api.progress = progress
        return api
