"""Numbers, plain types and the status of abi/include/millpond/base.h."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char, c_int32, c_uint8, c_uint32, c_uint64, c_void_p

TYPE_STATUS = 1
TYPE_HOST_API = 4
TYPE_BIND_ARGS = 5
TYPE_STEP_ARGS = 6
TYPE_REFRESH_ARGS = 7
TYPE_IO_ARGS = 8
TYPE_STEP_FIGURES = 48
TYPE_PLAN_FIGURES = 49
TYPE_RUNTIME_FIGURES = 50
TYPE_SAVE_PROGRESS = 51

OK = 0
E_ARGUMENT = 1
E_UNKNOWN_TAIL = 2
E_VERSION = 3
E_OPTION = 4
E_STATE = 5
E_REFUSED = 6
E_IO = 7
E_NO_SPACE = 8
E_TIMEOUT = 9
E_CORRUPT = 10
E_MISSING = 11
E_MISMATCH = 12
E_POISONED = 13
E_MEMORY = 14
E_DEVICE = 15
E_CALLBACK = 16
E_CANCELLED = 17
E_BUSY = 18
E_FORKED = 19
E_UNSUPPORTED = 20
E_PEER = 21
E_LEAKED = 22
E_INTERNAL = 23

STATUS_POISONED = 1
STATUS_SKIPPED = 2

SEGMENT_MAIN, SEGMENT_EXP_AVG, SEGMENT_EXP_AVG_SQ = 0, 1, 2

(
    IO_BACKGROUND,
    IO_COMMIT,
    IO_FAIL_IF_BUSY,
    IO_STAGE,
    IO_KEEP_MODEL,
    IO_INIT_FROM_MODEL,
    IO_CONVERT,
) = (1 << bit for bit in range(7))

DEVICE_CPU, DEVICE_CUDA = 1, 2
FP32 = 2 | 32 << 8 | 1 << 16
FP16 = 2 | 16 << 8 | 1 << 16
BF16 = 4 | 16 << 8 | 1 << 16

LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG = 0, 1, 2, 3

MAGIC = 0x444E4F504C4C494D


class Header(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("type", c_uint32)]


def header_of(kind: type[ctypes.Structure], number: int) -> Header:
    return Header(ctypes.sizeof(kind), number)


class Str(ctypes.Structure):
    _fields_ = [("ptr", c_void_p), ("len", c_uint64)]

    def text(self) -> str:
        return ctypes.string_at(self.ptr, self.len).decode() if self.len else ""


class Span(ctypes.Structure):
    _fields_ = [("ptr", c_void_p), ("count", c_uint64), ("stride", c_uint64)]


class Stream(ctypes.Structure):
    _fields_ = [("device_type", c_int32), ("device_id", c_int32), ("handle", c_uint64)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("byte_offset", c_uint64),
        ("numel", c_uint64),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("dtype", c_uint32),
        ("reserved", c_uint32),
    ]


class Group(ctypes.Structure):
    _fields_ = [("token", c_uint64), ("rank", c_uint32), ("size", c_uint32)]


class Status(ctypes.Structure):
    _fields_ = [
        ("header", Header),
        ("code", c_int32),
        ("native", c_int32),
        ("native_kind", c_uint32),
        ("flags", c_uint32),
        ("offset", c_uint64),
        ("wanted", c_uint64),
        ("got", c_uint64),
        ("field", c_char * 80),
        ("message", c_char * 896),
    ]


class Identity(ctypes.Structure):
    _fields_ = [
        ("magic", c_uint64),
        ("header", Header),
        ("major_min", c_uint32),
        ("major_max", c_uint32),
        ("minor", c_uint32),
        ("pointer_bytes", c_uint8),
        ("little_endian", c_uint8),
        ("reserved", c_uint8 * 2),
        ("layout_digest", c_uint8 * 32),
        ("name", ctypes.c_char_p),
        ("version", ctypes.c_char_p),
        ("build_id", ctypes.c_char_p),
        ("descriptor_set", c_void_p),
        ("descriptor_set_bytes", c_uint64),
    ]


StatusP = POINTER(Status)
