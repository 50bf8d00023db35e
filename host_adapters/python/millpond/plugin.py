"""libmillpond.so: found, opened, negotiated. It stays loaded until the process ends."""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from . import abi
from .errors import MillpondError, error_of

ENVIRONMENT = "MILLPOND_PLUGIN"


def find_plugin() -> Path:
    """The file that MILLPOND_PLUGIN names, else the one packed with this package."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        if not Path(named).is_file():
            raise MillpondError(
                f"{ENVIRONMENT} names {named}, which is not a file. Unset it to use the plugin "
                "of the installed package.",
                code=abi.E_MISSING,
                field=ENVIRONMENT,
            )
        return Path(named)
    packed = Path(__file__).resolve().parent / "libmillpond.so"
    if not packed.is_file():
        raise MillpondError(
            f"no plugin at {packed}: install the package with 'pip install .', or let "
            f"{ENVIRONMENT} name a libmillpond.so.",
            code=abi.E_MISSING,
            field=ENVIRONMENT,
        )
    return packed


def fresh_status() -> abi.Status:
    return abi.Status(header=abi.header_of(abi.Status, abi.TYPE_STATUS))


def str_of(text: str | bytes) -> abi.Str:
    """Lives as long as what is returned; a struct that copies it must be outlived by it."""
    raw = text.encode() if isinstance(text, str) else text
    kept = ctypes.create_string_buffer(raw, len(raw) or 1)
    result = abi.Str(ctypes.addressof(kept), len(raw))
    result._kept = kept
    return result


class Plugin:
    """An opened plugin: its identity, its table, and the handshake's messages, which are built
    from the descriptors that it carries."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = os.fspath(path)
        try:
            self.library = ctypes.CDLL(self.path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
            identify = self.library.millpond_plugin_identity
            open_table = self.library.millpond_open_v1
        except (OSError, AttributeError) as cause:
            raise MillpondError(
                f"{self.path} cannot be opened as a Millpond plugin: {cause}", code=abi.E_VERSION
            ) from cause
        identify.restype = ctypes.POINTER(abi.Identity)
        self.identity: abi.Identity = identify().contents
        self._check_identity()
        open_table.restype = ctypes.POINTER(abi.Table)
        open_table.argtypes = [ctypes.c_uint32, abi.StatusP]
        status = fresh_status()
        table = open_table(abi.MINOR, status)
        if not table:
            raise error_of(status)
        self.table: abi.Table = table.contents
        self._pool = descriptor_pool.DescriptorPool()
        raw = ctypes.string_at(self.identity.descriptor_set, self.identity.descriptor_set_bytes)
        for file in descriptor_pb2.FileDescriptorSet.FromString(raw).file:
            self._pool.Add(file)

    def _check_identity(self) -> None:
        identity = self.identity
        if identity.magic != abi.MAGIC:
            raise MillpondError(f"{self.path} is not a Millpond plugin", code=abi.E_VERSION)
        if not identity.major_min <= 1 <= identity.major_max:
            raise MillpondError(
                f"{self.path} serves ABI majors {identity.major_min} to {identity.major_max}, "
                "this package speaks 1: install versions that belong together.",
                code=abi.E_VERSION,
            )

    @property
    def version(self) -> str:
        return str(self.identity.version.decode())

    @functools.cache  # noqa: B019 - a plugin lives as long as the process
    def message(self, name: str) -> Any:
        """The class of millpond.v1.<name>."""
        return message_factory.GetMessageClass(
            self._pool.FindMessageTypeByName("millpond.v1." + name)
        )

    def extension(self, name: str, kind: Any) -> Any:
        """The table of "name/rev", for the process; an error where this plugin lacks it."""
        address = self.table.get_extension(None, str_of(name))
        if not address:
            raise MillpondError(
                f"{self.path} has no extension {name}: use a newer plugin", code=abi.E_VERSION
            )
        return ctypes.cast(address, ctypes.POINTER(kind)).contents


@functools.cache
def _opened(path: str) -> Plugin:
    return Plugin(path)


def default_plugin() -> Plugin:
    """The plugin of this process, opened once."""
    return _opened(os.fspath(find_plugin()))
