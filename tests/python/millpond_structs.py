"""The C structs of abi/include/millpond as ctypes sees them.

test_abi_layout.py holds them against abi/layout.golden.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_char,
    c_double,
    c_float,
    c_int32,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)

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
E_CORRUPT = 10
E_MISSING = 11
E_MISMATCH = 12
E_POISONED = 13
E_CALLBACK = 16
E_CANCELLED = 17
E_UNSUPPORTED = 20
E_PEER = 21

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


class UpdatePiece(ctypes.Structure):
    _fields_ = [
        ("header", Header),
        ("uid", Str),
        ("shard_id", c_uint64),
        ("group_id", c_uint64),
        ("begin", c_uint64),
        ("count", c_uint64),
        ("step", c_uint64),
        ("main", POINTER(c_float)),
        ("exp_avg", POINTER(c_float)),
        ("exp_avg_sq", POINTER(c_float)),
        ("grad", POINTER(c_float)),
        ("grad_scale", c_float),
        ("reserved", c_uint32),
    ]


Answer = POINTER(c_int32)
AllocFn = CFUNCTYPE(None, c_void_p, c_uint64, c_uint64, Stream, POINTER(c_void_p), Answer)
FreeFn = CFUNCTYPE(None, c_void_p, c_void_p, c_uint64, Stream, Answer)
ReleaseMainFn = CFUNCTYPE(None, c_void_p, Str, POINTER(c_uint64), c_uint64, Answer)
CopyMainFn = CFUNCTYPE(None, c_void_p, Str, c_uint64, c_uint64, POINTER(c_float), c_uint64, Answer)
UpdateFn = CFUNCTYPE(None, c_void_p, POINTER(UpdatePiece), Answer)
AllgatherFn = CFUNCTYPE(None, c_void_p, Group, c_void_p, c_void_p, c_uint64, Answer)
LogFn = CFUNCTYPE(None, c_void_p, c_uint32, Str)
ProgressFn = CFUNCTYPE(None, c_void_p, Str, c_uint64, c_uint64, Answer)


class HostApi(ctypes.Structure):
    _fields_ = [
        ("header", Header),
        ("context", c_void_p),
        ("alloc", AllocFn),
        ("free", FreeFn),
        ("release_main", ReleaseMainFn),
        ("copy_main_to_model", CopyMainFn),
        ("update", UpdateFn),
        ("allgather", AllgatherFn),
        ("log", LogFn),
        ("progress", ProgressFn),
    ]


class ShardPointers(ctypes.Structure):
    _fields_ = [("shard_id", c_uint64), ("model", Tensor), ("grad", Tensor), ("main", Tensor)]


class BindArgs(ctypes.Structure):
    _fields_ = [
        ("header", Header),
        ("profile", c_void_p),
        ("profile_bytes", c_uint64),
        ("shards", Span),
        ("stream", Stream),
    ]


class GroupStep(ctypes.Structure):
    _fields_ = [
        ("id", c_uint64),
        ("lr", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("eps", c_double),
        ("weight_decay", c_double),
        ("decoupled", c_uint32),
        ("maximize", c_uint32),
    ]


class StepArgs(ctypes.Structure):
    _fields_ = [
        ("header", Header),
        ("config_epoch", c_uint64),
        ("groups", Span),
        ("grads", c_void_p),
        ("dtypes", c_void_p),
        ("has_grad", c_void_p),
        ("shard_count", c_uint64),
        ("grad_scale", c_float),
        ("found_inf", c_uint8),
        ("reserved", c_uint8 * 3),
        ("stream", Stream),
    ]


class RefreshArgs(ctypes.Structure):
    _fields_ = [
        ("header", Header),
        ("shard_ids", c_void_p),
        ("count", c_uint64),
        ("stream", Stream),
    ]


class IoArgs(ctypes.Structure):
    _fields_ = [
        ("header", Header),
        ("path", Str),
        ("save_id", Str),
        ("flags", c_uint64),
        ("stream", Stream),
    ]


class StepFigures(ctypes.Structure):
    _fields_ = [
        ("header", Header),
        ("outcome", c_uint32),
        ("bound_by", c_uint32),
        ("step", c_uint64),
        ("tiles", c_uint64),
        ("tiles_from_tier", c_uint64),
        ("bytes_read", c_uint64),
        ("bytes_written", c_uint64),
        ("bytes_from_tier", c_uint64),
        ("seconds", c_double),
        ("busy_seconds", c_double * 5),
        ("waiting_seconds", c_double * 5),
    ]


class PlanFigures(ctypes.Structure):
    _fields_ = [
        ("header", Header),
        ("shards", c_uint64),
        ("elements", c_uint64),
        ("buckets", c_uint64),
        ("tiles", c_uint64),
        ("tile_elements", c_uint64),
        ("block_elements", c_uint64),
        ("tile_bytes", c_uint64),
        ("state_bytes", c_uint64),
        ("tier_tiles", c_uint64),
    ]


class RuntimeFigures(ctypes.Structure):
    _fields_ = [
        ("header", Header),
        ("host_bytes", c_uint64),
        ("host_places", c_uint64),
        ("ring_places", c_uint64),
        ("device_bytes", c_uint64),
        ("scratch_bytes", c_uint64),
        ("leaked_bytes", c_uint64),
        ("engine", c_char * 24),
        ("direct", c_uint32),
        ("update_threads", c_uint32),
    ]


StatusP = POINTER(Status)


class Table(ctypes.Structure):
    """millpond_table_v1. Handles are c_void_p."""

    _fields_ = [
        ("header", Header),
        ("minor", c_uint32),
        ("reserved", c_uint32),
        ("runtime_create", CFUNCTYPE(c_int32, POINTER(HostApi), Str, POINTER(c_void_p), StatusP)),
        ("runtime_destroy", CFUNCTYPE(c_int32, c_void_p, StatusP)),
        ("create", CFUNCTYPE(c_int32, c_void_p, Str, POINTER(c_void_p), StatusP)),
        ("destroy", CFUNCTYPE(c_int32, c_void_p, StatusP)),
        ("bind", CFUNCTYPE(c_int32, c_void_p, POINTER(BindArgs), POINTER(Str), StatusP)),
        ("unbind", CFUNCTYPE(c_int32, c_void_p, StatusP)),
        ("step", CFUNCTYPE(c_int32, c_void_p, POINTER(StepArgs), StatusP)),
        ("agree", CFUNCTYPE(c_int32, c_void_p, Group, StatusP)),
        ("refresh_main", CFUNCTYPE(c_int32, c_void_p, POINTER(RefreshArgs), StatusP)),
        ("save_to", CFUNCTYPE(c_int32, c_void_p, POINTER(IoArgs), StatusP)),
        ("load_from", CFUNCTYPE(c_int32, c_void_p, POINTER(IoArgs), StatusP)),
        ("get_extension", CFUNCTYPE(c_void_p, c_void_p, Str)),
    ]


class ExtReport(ctypes.Structure):
    _fields_ = [
        ("header", Header),
        ("last_step", CFUNCTYPE(c_int32, c_void_p, POINTER(StepFigures), StatusP)),
        ("plan", CFUNCTYPE(c_int32, c_void_p, POINTER(PlanFigures), StatusP)),
        ("runtime", CFUNCTYPE(c_int32, c_void_p, POINTER(RuntimeFigures), StatusP)),
    ]


_RangeFn = CFUNCTYPE(c_int32, c_void_p, c_uint64, c_uint32, c_uint64, c_uint64, c_void_p, StatusP)


class ExtState(ctypes.Structure):
    _fields_ = [
        ("header", Header),
        ("read", _RangeFn),
        ("write", _RangeFn),
        ("get_step", CFUNCTYPE(c_int32, c_void_p, c_uint64, POINTER(c_uint64), StatusP)),
        ("set_step", CFUNCTYPE(c_int32, c_void_p, c_uint64, c_uint64, StatusP)),
    ]


class ExtPhase(ctypes.Structure):
    _fields_ = [
        ("header", Header),
        ("suspend", CFUNCTYPE(c_int32, c_void_p, c_uint64, StatusP)),
        ("resume", CFUNCTYPE(c_int32, c_void_p, StatusP)),
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


# Name in abi/layout.golden -> the class here.
GOLDEN_NAMES = {
    "millpond_header": Header,
    "millpond_str": Str,
    "millpond_span": Span,
    "millpond_stream": Stream,
    "millpond_tensor": Tensor,
    "millpond_group": Group,
    "millpond_status": Status,
    "millpond_update_piece": UpdatePiece,
    "millpond_host_api": HostApi,
    "millpond_shard_pointers": ShardPointers,
    "millpond_bind_args": BindArgs,
    "millpond_group_step": GroupStep,
    "millpond_step_args": StepArgs,
    "millpond_refresh_args": RefreshArgs,
    "millpond_io_args": IoArgs,
    "millpond_step_figures": StepFigures,
    "millpond_plan_figures": PlanFigures,
    "millpond_runtime_figures": RuntimeFigures,
    "millpond_table_v1": Table,
    "millpond_ext_report": ExtReport,
    "millpond_ext_state": ExtState,
    "millpond_ext_phase": ExtPhase,
    "millpond_identity": Identity,
}
