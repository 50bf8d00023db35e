"""What the host gives: callbacks, pointers, arguments of calls (abi/include/millpond/host.h)."""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_double,
    c_float,
    c_int32,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)

from .base import Group, Header, Span, Str, Stream, Tensor


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
