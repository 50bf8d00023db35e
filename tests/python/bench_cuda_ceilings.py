"""The ceilings of bench_cuda.py: the bus, the drive, and a kernel that only moves bytes."""

from __future__ import annotations

import ctypes
import random
import statistics
from collections.abc import Callable
from typing import Any

import torch

CHUNK = 256 << 20  # bytes of one copy
COPIES = 8


class Bus:
    """Copies between pinned memory and the device, bytes per second."""

    def __init__(self) -> None:
        self.up_from, self.down_to = (
            torch.empty(CHUNK, dtype=torch.uint8, pin_memory=True) for _ in range(2)
        )
        self.up_to, self.down_from = (
            torch.empty(CHUNK, dtype=torch.uint8, device="cuda") for _ in range(2)
        )
        self.streams = [torch.cuda.Stream() for _ in range(2)]

    def copy(self, up: bool) -> None:
        if up:
            self.up_to.copy_(self.up_from, non_blocking=True)
        else:
            self.down_to.copy_(self.down_from, non_blocking=True)

    def timed(self, ways: tuple[bool, ...]) -> float:
        torch.cuda.synchronize()
        begin = [torch.cuda.Event(enable_timing=True) for _ in ways]
        end = [torch.cuda.Event(enable_timing=True) for _ in ways]
        for i, stream in enumerate(self.streams[: len(ways)]):
            begin[i].record(stream)
        for _ in range(COPIES):
            for i, way in enumerate(ways):
                with torch.cuda.stream(self.streams[i]):
                    self.copy(way)
        for i, stream in enumerate(self.streams[: len(ways)]):
            end[i].record(stream)
        torch.cuda.synchronize()
        longest = max(begin[0].elapsed_time(e) for e in end)
        return len(ways) * COPIES * CHUNK / longest * 1e3

    def one_way(self, up: bool) -> float:
        return self.timed((up,))

    def both(self) -> float:
        """Both directions at once, the total."""
        return self.timed((True, False))


def drive_rate(shim: Any, directory: str) -> float:
    """Reads and writes in equal parts, nothing else."""
    shim.drive_shim_rate.restype = ctypes.c_double
    size = ctypes.c_uint64(4 << 30)
    return shim.drive_shim_rate(directory.encode(), size, size, ctypes.c_double(0.5))


def median_ms(work: Callable[[], Any], repeats: int = 21) -> float:
    times = []
    for _ in range(repeats + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[3:])


class ShimStep(ctypes.Structure):
    _fields_ = [
        ("lr", ctypes.c_double), ("beta1", ctypes.c_double), ("beta2", ctypes.c_double),
        ("eps", ctypes.c_double), ("weight_decay", ctypes.c_double), ("step", ctypes.c_uint64),
        ("grad_scale", ctypes.c_float), ("variant", ctypes.c_int32),
        ("decoupled", ctypes.c_int32), ("maximize", ctypes.c_int32), ("fresh", ctypes.c_int32),
    ]  # fmt: skip


def kernel_rates(shim: Any) -> dict[str, Any]:
    """The update's bytes per second beside a kernel with the same loads and stores and no
    arithmetic: one large shard, and a tile of 10,000 shards of 1 to 2,000 elements."""
    random.seed(1)
    sizes = {"large": [256 << 20], "small": [random.randint(1, 2000) for _ in range(10_000)]}
    name = b"torch_cuda_fused/2"
    variant = shim.cuda_shim_variant(name, ctypes.c_uint64(len(name)))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    shim.cuda_shim_many_bytes.restype = ctypes.c_uint64
    result: dict[str, Any] = {}
    for what, numels in sizes.items():
        offsets, end, total = [], 0, sum(numels)
        for n in numels:
            offsets.append(end)
            end += (n + 255) // 256 * 256
        arrays = [torch.rand(end, device="cuda") for _ in range(4)]
        model = torch.empty(end, dtype=torch.bfloat16, device="cuda")
        count = ctypes.c_uint64(len(numels))
        tables = torch.empty(shim.cuda_shim_many_bytes(count), dtype=torch.uint8, device="cuda")
        step = ShimStep(1e-3, 0.9, 0.999, 1e-8, 0.01, 10, 1.0, variant, 1, 0, 0)
        lists = [(ctypes.c_uint64 * len(numels))(*x) for x in (offsets, numels)]
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (*arrays, model)]

        def update(
            prepare: int = 0, step=step, pointers=pointers, lists=lists, count=count, end=end,
            tables=tables,
        ) -> None:  # fmt: skip
            error = shim.cuda_shim_update_many(
                ctypes.byref(step), *pointers, *lists, count, ctypes.c_uint64(end),
                ctypes.c_void_p(tables.data_ptr()), prepare, stream,
            )  # fmt: skip
            assert error == 0, error

        def touch(pointers=pointers, total=total) -> None:
            error = shim.cuda_shim_touch(*pointers, ctypes.c_uint64(total), stream)
            assert error == 0, error

        update(prepare=1)
        ours, theirs = [], []
        for _ in range(5):
            theirs.append(median_ms(touch))
            ours.append(median_ms(update))
        moved = total * 30
        result[what] = {
            "elements": sum(numels), "shards": len(numels), "update_ms": ours, "copy_ms": theirs,
            "update_rate": moved / statistics.median(ours) * 1e3,
            "copy_rate": moved / statistics.median(theirs) * 1e3,
            "of_copy": statistics.median(theirs) / statistics.median(ours),
        }  # fmt: skip
        del arrays, model, pointers
    return result
