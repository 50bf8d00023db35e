"""The table of functions and the extensions, as ctypes sees them. Handles are c_void_p."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_char, c_double, c_int32, c_uint32, c_uint64, c_void_p

from .base import Group, Header, StatusP, Str
from .host import BindArgs, HostApi, IoArgs, RefreshArgs, StepArgs


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


SAVE_NONE, SAVE_WRITING, SAVE_WRITTEN, SAVE_FAILED = 0, 1, 2, 3


class SaveId(ctypes.Structure):
    _fields_ = [("text", c_char * 40)]


class SaveProgress(ctypes.Structure):
    _fields_ = [
        ("header", Header),
        ("state", c_uint32),
        ("reserved", c_uint32),
        ("bytes_done", c_uint64),
        ("bytes_total", c_uint64),
    ]


class ExtCheckpoint(ctypes.Structure):
    _fields_ = [
        ("header", Header),
        (
            "save_begin",
            CFUNCTYPE(c_int32, c_void_p, Group, Str, POINTER(SaveId), StatusP),
        ),
        ("poll", CFUNCTYPE(c_int32, c_void_p, POINTER(SaveProgress), StatusP)),
        ("wait", CFUNCTYPE(c_int32, c_void_p, StatusP)),
        ("cancel", CFUNCTYPE(c_int32, c_void_p, StatusP)),
        ("save_commit", CFUNCTYPE(c_int32, c_void_p, Group, Str, StatusP)),
        ("load_commit", CFUNCTYPE(c_int32, c_void_p, Group, StatusP)),
    ]
