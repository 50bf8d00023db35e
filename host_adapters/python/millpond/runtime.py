"""A runtime and its stores, as Python objects: handles with lifetimes, errors as exceptions.

One thread at a time is inside the calls of a runtime (the plugin makes a second one wait). Nothing
here communicates but agree, save_begin, save_commit and load_commit, through the allgather that
the callbacks offer.
"""

from __future__ import annotations

import ctypes
import json
import os
import weakref
from collections.abc import Callable
from typing import Any

from . import abi
from .callbacks import LOG, Callbacks
from .errors import MillpondError, Refusal, RefusedError, error_of, refused
from .interrupts import INTERRUPTS
from .plugin import Plugin, default_plugin, fresh_status, str_of

ONE_RANK = abi.Group(0, 0, 1)
Path_ = str | os.PathLike[str]


class Runtime:
    """What a process has once for each set of options. Destroys its stores with it, at latest when
    the interpreter ends; in a forked child nothing is destroyed."""

    def __init__(
        self,
        options: dict[str, Any],
        callbacks: Callbacks | None = None,
        plugin: Plugin | None = None,
    ):
        self.plugin = plugin or default_plugin()
        self.table = self.plugin.table
        self.callbacks = callbacks or Callbacks()
        api = self.callbacks.api()
        handle = ctypes.c_void_p()
        self.call(self.table.runtime_create, api, str_of(json.dumps(options)), handle)
        self.handle = handle
        # `api` and the callbacks in it live until the finalizer has run.
        self._close = weakref.finalize(self, _destroy, self.table, handle, api, os.getpid())

    def call(self, function: Callable[..., int], *arguments: Any, cancel_at: int = 1) -> int:
        """Calls with a status behind the arguments; returns its flags. SIGINT waits meanwhile; the
        `cancel_at`-th cancels what can be cancelled."""
        status = fresh_status()
        with INTERRUPTS.held(cancel_at):
            function(*arguments, status)
            raised = self.callbacks.take_raised()
            if status.code != abi.OK:
                raise error_of(status) from raised
        return int(status.flags)

    @property
    def closed(self) -> bool:
        return not self._close.alive

    def close(self) -> None:
        """Destroys the runtime and its stores; scratch files go. Twice is no harm."""
        self._close()

    def store(self, uid: str) -> Store:
        return Store(self, uid)

    def agree(self, group: abi.Group = ONE_RANK) -> None:
        """One round over the group: a failure of any rank since the last agree is everybody's."""
        self.call(self.table.agree, self.handle, group, cancel_at=2)

    def save_begin(
        self, path: str | os.PathLike[str], group: abi.Group = ONE_RANK, chosen: str = ""
    ) -> str:
        """Makes a save's directory below `path`; returns the save's id, the same on all ranks.
        `chosen`: 32 hexadecimal digits that the host wants as its id; rank 0's count."""
        made = abi.SaveId(chosen.encode())
        checkpoint = self.plugin.extension("checkpoint/1", abi.ExtCheckpoint)
        self.call(checkpoint.save_begin, self.handle, group, str_of(os.fspath(path)), made)
        return str(made.text.decode())

    def save_commit(self, save_id: str, group: abi.Group = ONE_RANK) -> None:
        """All ranks wrote all their stores: the save counts; otherwise on none, and all raise."""
        checkpoint = self.plugin.extension("checkpoint/1", abi.ExtCheckpoint)
        self.call(checkpoint.save_commit, self.handle, group, str_of(save_id), cancel_at=2)

    def load_commit(self, group: abi.Group = ONE_RANK) -> None:
        """Installs what was staged on all ranks, or on none."""
        checkpoint = self.plugin.extension("checkpoint/1", abi.ExtCheckpoint)
        self.call(checkpoint.load_commit, self.handle, group, cancel_at=2)

    def figures(self) -> abi.RuntimeFigures:
        figures = abi.RuntimeFigures(
            header=abi.header_of(abi.RuntimeFigures, abi.TYPE_RUNTIME_FIGURES)
        )
        report = self.plugin.extension("report/1", abi.ExtReport)
        self.call(report.runtime, self.handle, figures)
        return figures


def _destroy(table: abi.Table, handle: ctypes.c_void_p, api: abi.HostApi, owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked child: everything is the parent's
    status = fresh_status()
    if table.runtime_destroy(handle, status) != abi.OK:
        LOG.warning("closing the runtime: %s", status.message.decode(errors="replace"))
    del api


class Store:
    """One streamed optimizer of a runtime. `uid` is its name on this rank."""

    def __init__(self, runtime: Runtime, uid: str):
        self.runtime, self.table, self.uid = runtime, runtime.table, uid
        self.handle = ctypes.c_void_p()
        runtime.call(self.table.create, runtime.handle, str_of(uid), self.handle)
        self._state = runtime.plugin.extension("state/1", abi.ExtState)

    def bind(self, profile: Any, pointers: Any, stream: abi.Stream) -> Any:
        """profile: a HostProfile; pointers: a ctypes array of ShardPointers in its order of shards,
        whose memory stays borrowed until the next bind. stream: here and below, the one in whose
        order the parameters are valid. Returns the BindReport; RefusedError has every refusal."""
        raw = profile.SerializeToString()
        args = abi.BindArgs(
            abi.header_of(abi.BindArgs, abi.TYPE_BIND_ARGS),
            ctypes.cast(ctypes.c_char_p(raw), ctypes.c_void_p),
            len(raw),
            span_of(pointers),
            stream,
        )
        report = abi.Str()
        parse = self.runtime.plugin.message("BindReport").FromString
        try:
            self.runtime.call(self.table.bind, self.handle, args, report)
        except MillpondError as error:
            text = ctypes.string_at(report.ptr, report.len) if report.len else b""
            raise explained(error, parse(text)) from error.__cause__
        return parse(ctypes.string_at(report.ptr, report.len))

    def step(self, args: abi.StepArgs) -> bool:
        """True where the step was taken, False where found_inf skipped it."""
        flags = self.runtime.call(self.table.step, self.handle, args, cancel_at=2)
        return not flags & abi.STATUS_SKIPPED

    def refresh(self, stream: abi.Stream) -> None:
        """Mains := parameters, for all shards; moments and counters stay."""
        args = abi.RefreshArgs(
            abi.header_of(abi.RefreshArgs, abi.TYPE_REFRESH_ARGS), None, 0, stream
        )
        self.runtime.call(self.table.refresh_main, self.handle, args)

    def save(self, path: Path_, flags: int, save_id: str, stream: abi.Stream) -> None:
        """flags: abi.IO_*; with a save's id, or IO_COMMIT for one rank with one store."""
        self._io(self.table.save_to, path, flags, save_id, stream)

    def load(self, path: Path_, flags: int, save_id: str, stream: abi.Stream) -> None:
        """Verifies everything, then installs; a refusal changes nothing."""
        self._io(self.table.load_from, path, flags, save_id, stream)

    def _io(
        self, function: Callable[..., int], path: Path_, flags: int, save_id: str,
        stream: abi.Stream,
    ) -> None:  # fmt: skip
        where, which = str_of(os.fspath(path)), str_of(save_id)
        header = abi.header_of(abi.IoArgs, abi.TYPE_IO_ARGS)
        args = abi.IoArgs(header, where, which if save_id else abi.Str(), flags, stream)
        self.runtime.call(function, self.handle, args)

    def poll(self) -> abi.SaveProgress:
        """Of the newest save; never blocks."""
        now = abi.SaveProgress(header=abi.header_of(abi.SaveProgress, abi.TYPE_SAVE_PROGRESS))
        checkpoint = self.runtime.plugin.extension("checkpoint/1", abi.ExtCheckpoint)
        self.runtime.call(checkpoint.poll, self.handle, now)
        return now

    def cancel(self) -> None:
        """Gives up the save in flight; OK when there is none."""
        checkpoint = self.runtime.plugin.extension("checkpoint/1", abi.ExtCheckpoint)
        self.runtime.call(checkpoint.cancel, self.handle)

    def read(self, shard: int, segment: int, begin: int, count: int, address: int) -> None:
        """fp32 values of a shard's segment into host memory at `address`."""
        self.runtime.call(self._state.read, self.handle, shard, segment, begin, count, address)

    def write(self, shard: int, segment: int, begin: int, count: int, address: int) -> None:
        """The reverse; parameters are not touched."""
        self.runtime.call(self._state.write, self.handle, shard, segment, begin, count, address)

    def counter(self, shard: int) -> int:
        value = ctypes.c_uint64()
        self.runtime.call(self._state.get_step, self.handle, shard, value)
        return value.value

    def set_counter(self, shard: int, step: int) -> None:
        self.runtime.call(self._state.set_step, self.handle, shard, step)

    def last_step(self) -> abi.StepFigures:
        figures = abi.StepFigures(header=abi.header_of(abi.StepFigures, abi.TYPE_STEP_FIGURES))
        report = self.runtime.plugin.extension("report/1", abi.ExtReport)
        self.runtime.call(report.last_step, self.handle, figures)
        return figures

    def wait(self) -> None:
        """Until the newest save is written; raises what it failed with."""
        checkpoint = self.runtime.plugin.extension("checkpoint/1", abi.ExtCheckpoint)
        self.runtime.call(checkpoint.wait, self.handle)

    def destroy(self) -> None:
        """Scratch files go. The runtime does it for stores that are left."""
        handle, self.handle = self.handle, ctypes.c_void_p()
        self.runtime.call(self.table.destroy, handle)


def span_of(array: Any) -> abi.Span:
    """A ctypes array as a span; the array must outlive it."""
    return abi.Span(ctypes.addressof(array), len(array), ctypes.sizeof(array._type_))


def explained(error: MillpondError, report: Any) -> MillpondError:
    """The error of a bind, with the report's refusals."""
    refusals = [Refusal(r.code, r.subject, r.reason, r.remedy) for r in report.refusals]
    if not isinstance(error, RefusedError) or not refusals:
        return error
    full = refused(refusals)
    full.field, full.flags = error.field, error.flags
    return full
