"""A small host of Millpond through ctypes: what any foreign function interface can do.

The handshake's messages are built at run time from the descriptor set that the plugin carries; no
code is generated.
Nothing here judges: the plugin's words come back as MillpondError.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from millpond import abi as c
from millpond_callbacks import Callbacks
from millpond_shards import Shard, known_features


class MillpondError(Exception):
    """A status that is not OK."""

    def __init__(self, status: c.Status):
        self.code: int = status.code
        self.native: int = status.native
        self.flags: int = status.flags
        self.offset: int = status.offset
        self.wanted: int = status.wanted
        self.got: int = status.got
        self.field: str = status.field.decode()
        self.message: str = status.message.decode()
        self.report: Any = None  # a BindReport, where bind was refused
        super().__init__(f"error {self.code} [{self.field}]: {self.message}")


def fresh_status() -> c.Status:
    return c.Status(header=c.Header(ctypes.sizeof(c.Status), c.TYPE_STATUS))


def str_of(text: str | bytes) -> c.Str:
    """Borrows: the caller keeps `_kept` alive by keeping the struct."""
    raw = text.encode() if isinstance(text, str) else text
    kept = ctypes.create_string_buffer(raw, len(raw) or 1)
    result = c.Str(ctypes.addressof(kept), len(raw))
    result._kept = kept
    return result


CPU_STREAM = c.Stream(c.DEVICE_CPU, 0, 0)


class Plugin:
    """libmillpond.so, opened by path. Never unloaded."""

    def __init__(self, path: str | os.PathLike[str], minor: int = 0):
        self.path = os.fspath(path)
        self.library = ctypes.CDLL(self.path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
        self.library.millpond_plugin_identity.restype = ctypes.POINTER(c.Identity)
        self.identity: c.Identity = self.library.millpond_plugin_identity().contents
        self.library.millpond_open_v1.restype = ctypes.POINTER(c.Table)
        self.library.millpond_open_v1.argtypes = [ctypes.c_uint32, c.StatusP]
        status = fresh_status()
        table = self.library.millpond_open_v1(minor, status)
        if not table:
            raise MillpondError(status)
        self.table: c.Table = table.contents
        self.minor: int = self.table.minor
        raw = ctypes.string_at(self.identity.descriptor_set, self.identity.descriptor_set_bytes)
        self.descriptors = descriptor_pb2.FileDescriptorSet.FromString(raw)
        pool = descriptor_pool.DescriptorPool()
        for file in self.descriptors.file:
            pool.Add(file)
        self.pool = pool

    def message(self, name: str) -> type:
        return message_factory.GetMessageClass(
            self.pool.FindMessageTypeByName("millpond.v1." + name)
        )

    def profile(
        self,
        shards: Sequence[Shard],
        arithmetic: str,
        groups: Iterable[int] | None = None,
        features: dict[str, int] | None = None,
        epoch: int = 1,
        per_group: bool = False,
    ) -> Any:
        """A HostProfile. Features not named are INACTIVE (1)."""
        profile = self.message("HostProfile")(
            framework="test", framework_version="1", adapter="ctypes", adapter_version="1",
            arithmetic=arithmetic, config_epoch=epoch,
        )  # fmt: skip
        profile.optimizer.class_name = "torch.optim.AdamW"
        profile.optimizer.family = 1
        states = dict.fromkeys(known_features(self.minor), 1) | (features or {})
        for name, state in states.items():
            profile.features.add(name=name, state=state)
        for group in groups if groups is not None else sorted({shard.group for shard in shards}):
            profile.groups.add(id=group, key=f"group{group}", counter=int(per_group))
        kind = self.message("Shard")
        profile.shards.extend(shard.message(kind) for shard in shards)
        return profile


def check(code: int, status: c.Status) -> None:
    if code != status.code:
        raise AssertionError(f"returned {code}, the status says {status.code}")
    if code != c.OK:
        raise MillpondError(status)


class Runtime:
    def __init__(
        self, plugin: Plugin, options: dict[str, Any] | str, callbacks: Callbacks | None = None
    ):
        self.plugin, self.table = plugin, plugin.table
        self.api = (callbacks or Callbacks()).api()  # keeps the callbacks alive
        document = options if isinstance(options, str) else json.dumps(options)
        self.handle = ctypes.c_void_p()
        status = fresh_status()
        check(self.table.runtime_create(self.api, str_of(document), self.handle, status), status)

    def store(self, uid: str = "rank00000/opt0_0") -> Store:
        return Store(self, uid)

    def extension(self, name: str, kind: type[ctypes.Structure]) -> Any:
        address = self.table.get_extension(self.handle, str_of(name))
        return ctypes.cast(address, ctypes.POINTER(kind)).contents if address else None

    def call(self, function: Callable[..., int], *arguments: Any) -> c.Status:
        status = fresh_status()
        check(function(*arguments, status), status)
        return status

    def figures(self) -> c.RuntimeFigures:
        figures = c.RuntimeFigures(header=c.header_of(c.RuntimeFigures, c.TYPE_RUNTIME_FIGURES))
        self.call(self.extension("report/1", c.ExtReport).runtime, self.handle, figures)
        return figures

    def agree(self, token: int = 0, rank: int = 0, size: int = 1) -> None:
        self.call(self.table.agree, self.handle, c.Group(token, rank, size))

    def destroy(self) -> None:
        handle, self.handle = self.handle, ctypes.c_void_p()
        self.call(self.table.runtime_destroy, handle)

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()


class Store:
    def __init__(self, runtime: Runtime, uid: str):
        self.runtime, self.plugin, self.table = runtime, runtime.plugin, runtime.table
        self.handle = ctypes.c_void_p()
        runtime.call(self.table.create, runtime.handle, str_of(uid), self.handle)
        self.epoch = 1
        self.shards = 0
        self.stream = CPU_STREAM  # of every call; of the device for a store on one

    def bind(
        self,
        shards: Sequence[Shard],
        profile: Any,
        edit: Callable[[c.BindArgs], None] | None = None,
    ) -> Any:
        """Returns the BindReport. `edit` may spoil the arguments before they are passed."""
        raw = profile if isinstance(profile, bytes) else profile.SerializeToString()
        pointers = (c.ShardPointers * len(shards))(*(shard.pointers() for shard in shards))
        args = c.BindArgs(
            c.header_of(c.BindArgs, c.TYPE_BIND_ARGS),
            ctypes.cast(ctypes.c_char_p(raw), ctypes.c_void_p), len(raw),
            c.Span(ctypes.addressof(pointers), len(shards), ctypes.sizeof(c.ShardPointers)),
            self.stream,
        )  # fmt: skip
        if edit:
            edit(args)
        report, status = c.Str(), fresh_status()
        code = self.table.bind(self.handle, args, report, status)
        text = ctypes.string_at(report.ptr, report.len) if report.len else b""
        parsed = self.plugin.message("BindReport").FromString(text)
        if code != c.OK:
            error = MillpondError(status)
            error.report = parsed
            raise error
        self.epoch = getattr(profile, "config_epoch", 1)
        self.shards = len(shards)
        return parsed

    def step(
        self,
        groups: Sequence[c.GroupStep],
        grads: Sequence[int] | None = None,
        has_grad: Sequence[int] | None = None,
        found_inf: bool = False,
        grad_scale: float = 1.0,
        edit: Callable[[c.StepArgs], None] | None = None,
    ) -> bool:
        """True where the step was taken, False where it was skipped."""
        array = (c.GroupStep * len(groups))(*groups)
        addresses = (ctypes.c_void_p * len(grads))(*grads) if grads is not None else None
        present = (ctypes.c_uint8 * len(has_grad))(*has_grad) if has_grad is not None else None
        args = c.StepArgs(
            c.header_of(c.StepArgs, c.TYPE_STEP_ARGS), self.epoch,
            c.Span(ctypes.addressof(array), len(groups), ctypes.sizeof(c.GroupStep)),
            ctypes.cast(addresses, ctypes.c_void_p), None, ctypes.cast(present, ctypes.c_void_p),
            self.shards, grad_scale, found_inf, (ctypes.c_uint8 * 3)(), self.stream,
        )  # fmt: skip
        if edit:
            edit(args)
        return not self.runtime.call(self.table.step, self.handle, args).flags & c.STATUS_SKIPPED

    def _io(self, function: Callable[..., int], path: str | os.PathLike[str], flags: int) -> None:
        where = str_of(os.fspath(path))  # IoArgs copies the struct, not what keeps its text alive
        header = c.header_of(c.IoArgs, c.TYPE_IO_ARGS)
        self.runtime.call(
            function, self.handle, c.IoArgs(header, where, c.Str(), flags, self.stream)
        )

    def save(self, path: str | os.PathLike[str], flags: int = c.IO_COMMIT) -> None:
        self._io(self.table.save_to, path, flags)

    def load(self, path: str | os.PathLike[str], flags: int = 0) -> None:
        self._io(self.table.load_from, path, flags)

    def refresh(self) -> None:
        args = c.RefreshArgs(c.header_of(c.RefreshArgs, c.TYPE_REFRESH_ARGS), None, 0, self.stream)
        self.runtime.call(self.table.refresh_main, self.handle, args)

    def read(self, shard: int, segment: int, begin: int, count: int) -> Any:
        values = (ctypes.c_float * count)()
        state = self.runtime.extension("state/1", c.ExtState)
        self.runtime.call(
            state.read, self.handle, shard, segment, begin, count, ctypes.addressof(values)
        )
        return values

    def counter(self, shard: int) -> int:
        value = ctypes.c_uint64()
        self.runtime.call(
            self.runtime.extension("state/1", c.ExtState).get_step, self.handle, shard, value
        )
        return value.value

    def last_step(self) -> c.StepFigures:
        figures = c.StepFigures(header=c.header_of(c.StepFigures, c.TYPE_STEP_FIGURES))
        self.runtime.call(
            self.runtime.extension("report/1", c.ExtReport).last_step, self.handle, figures
        )
        return figures

    def unbind(self) -> None:
        self.runtime.call(self.table.unbind, self.handle)

    def destroy(self) -> None:
        handle, self.handle = self.handle, ctypes.c_void_p()
        self.runtime.call(self.table.destroy, handle)


def adamw(
    group: int,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    decoupled: bool = True,
    maximize: bool = False,
) -> c.GroupStep:
    return c.GroupStep(group, lr, beta1, beta2, eps, weight_decay, decoupled, maximize)
