"""A measurement, not a test: steps on a GPU beside the ceilings of the same machine, as JSON.

    python3 bench_cuda.py --plugin libmillpond.so --drive-shim libmillpond_drive_shim.so \\
        --kernels-shim libmillpond_cuda_shim.so --scratch /mnt/nvme --out figures.json

Every figure is the median of pairs (ceiling, ours, ceiling, ours, ...). Bytes are bytes, GB 1e9.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from bench_cuda_ceilings import Bus, drive_rate, kernel_rates
from millpond_cuda import stream_of
from millpond_host import Plugin, Runtime, adamw
from millpond_shards import Memory, Shard

STAGES = ("fetch", "upload", "update", "download", "flush")


class Peak:
    """The most device memory in use while it runs, over what was in use before."""

    def __init__(self) -> None:
        self.before = torch.cuda.mem_get_info()[0]
        self.least = self.before
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self) -> None:
        while not self.over.wait(0.002):
            self.least = min(self.least, torch.cuda.mem_get_info()[0])

    def __enter__(self) -> Peak:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    def bytes(self) -> int:
        return self.before - self.least


class Case:
    """One store over all parameters, with these options."""

    def __init__(self, plugin: Plugin, models: list[Any], grads: list[Any], options: dict):
        self.lines: list[str] = []
        self.runtime = Runtime(plugin, {"log_level": "warning", **options})
        self.store = self.runtime.store()
        self.store.stream = stream_of()
        self.shards = [
            Shard(i, f"layer{i}", Memory.of_torch(m), Memory.of_torch(g))
            for i, (m, g) in enumerate(zip(models, grads, strict=True))
        ]
        profile = plugin.profile(self.shards, "torch_cuda_fused/2")
        with Peak() as peak:
            begin = time.perf_counter()
            self.store.bind(self.shards, profile)
            self.bind_seconds = time.perf_counter() - begin
        self.bind_peak = peak.bytes()
        with Peak() as peak:
            self.first_seconds = self.step()
            self.step()
        self.step_peak = peak.bytes()

    def step(self) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        self.store.step([adamw(0, 1e-4)])
        torch.cuda.current_stream().synchronize()
        return time.perf_counter() - begin

    def figures(self) -> dict[str, Any]:
        last, runtime = self.store.last_step(), self.runtime.figures()
        return {
            "bind_s": self.bind_seconds, "bind_device_peak_bytes": self.bind_peak,
            "first_step_s": self.first_seconds, "step_device_peak_bytes": self.step_peak,
            "device_bytes": runtime.device_bytes, "host_bytes": runtime.host_bytes,
            "engine": runtime.engine.decode(), "tiles": last.tiles,
            "tiles_from_tier": last.tiles_from_tier,
            "bytes_read": last.bytes_read, "bytes_written": last.bytes_written,
            "busy_s": dict(zip(STAGES, last.busy_seconds, strict=True)),
            "waiting_s": dict(zip(STAGES, last.waiting_seconds, strict=True)),
            "bound_by": STAGES[last.bound_by],
        }  # fmt: skip

    def close(self) -> None:
        self.runtime.destroy()


def pairs(count: int, ceiling: Callable[[], float], ours: Callable[[], float]) -> dict[str, Any]:
    ceilings, times = [], []
    for _ in range(count):
        ceilings.append(ceiling())
        times.append(ours())
    return {
        "ceilings": ceilings, "seconds": times,
        "ceiling": statistics.median(ceilings), "median_s": statistics.median(times),
    }  # fmt: skip


def bus_bound(case: Case, bus: Bus, count: int, state_bytes: int) -> dict[str, Any]:
    """Against the bytes each way at half of the duplex total."""
    case.step()
    result = pairs(count, lambda: bus.both() / 2, case.step) | case.figures()
    floor = state_bytes / result["ceiling"]
    return result | {"floor_s": floor, "times_floor": result["median_s"] / floor}


def drive_bound(case: Case, count: int, ceiling: Callable[[], float]) -> dict[str, Any]:
    """Bytes that moved over the time, against the drive's mixed rate."""
    moved: list[int] = []

    def ours() -> float:
        seconds = case.step()
        last = case.store.last_step()
        moved.append(last.bytes_read + last.bytes_written)
        return seconds

    case.step()
    result = pairs(count, ceiling, ours) | case.figures()
    rates = [b / s for b, s in zip(moved, result["seconds"], strict=True)]
    ratios = [r / c for r, c in zip(rates, result["ceilings"], strict=True)]
    return result | {
        "moved_bytes": moved, "rate": statistics.median(rates),
        "of_ceiling": statistics.median(rates) / result["ceiling"],
        "of_ceiling_by_pair": ratios,
    }  # fmt: skip


class Products:
    """Matrix products on a stream of their own, from a thread of their own, while it runs."""

    BATCH = 20

    def __init__(self, size: int = 8192):
        self.stream = torch.cuda.Stream()
        self.factor = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
        self.over = threading.Event()
        self.seconds: list[float] = []  # of one product, by batch

    def batch(self) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(self.stream):
            begin.record()
            for _ in range(self.BATCH):
                torch.mm(self.factor, self.factor)
            end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / self.BATCH

    def run(self) -> None:
        while not self.over.is_set():
            self.seconds.append(self.batch())

    def __enter__(self) -> Products:
        self.over.clear()
        self.seconds.clear()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()


def beside_products(case: Case) -> dict[str, Any]:
    """A drive-bound step, and matrix products beside it: each alone, and both."""
    products = Products()
    alone, beside, products_alone, products_beside = [], [], [], []
    products.batch()
    for _ in range(3):
        with products:
            time.sleep(2)
        products_alone.append(statistics.median(products.seconds))
        alone.append(case.step())
        with products:
            begin = time.perf_counter()
            case.store.step([adamw(0, 1e-4)])
            beside.append(time.perf_counter() - begin)
        products_beside.append(statistics.median(products.seconds))
    return {
        "step_alone_s": alone, "step_beside_s": beside,
        "product_alone_s": products_alone, "product_beside_s": products_beside,
        "step_slower": statistics.median(beside) / statistics.median(alone),
        "product_slower": statistics.median(products_beside) / statistics.median(products_alone),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("plugin", "drive-shim", "kernels-shim", "scratch", "out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--layers", type=int, default=24, help="matrices")
    parser.add_argument("--width", type=int, default=8192, help="rows and columns of each")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--tier-bytes", type=int, default=10 << 30, help="of the drive's cases")
    parser.add_argument("--cases", default="kernel,tier,mapped,bf16,drive,drive_bf16")
    options = parser.parse_args()
    numel = options.width * options.width
    elements = options.layers * numel
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "elements": elements, "tier_bytes": options.tier_bytes,
    }  # fmt: skip

    def keep(name: str, figures: dict[str, Any]) -> None:
        result[name] = figures
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
        short = {k: v for k, v in figures.items() if not isinstance(v, list)}
        print(name, json.dumps(short), flush=True)

    wanted = options.cases.split(",")
    if "kernel" in wanted:
        keep("kernel", kernel_rates(ctypes.CDLL(options.kernels_shim)))
    plugin = Plugin(options.plugin)
    generator = torch.Generator("cuda").manual_seed(1)
    models = [
        torch.randn(numel, generator=generator, device="cuda", dtype=torch.bfloat16)
        for _ in range(options.layers)
    ]
    grads = [torch.randn_like(model) * 1e-3 for model in models]
    bus = Bus()
    keep("bus", {"up": bus.one_way(True), "down": bus.one_way(False), "both": bus.both()})
    Case(plugin, [m[:4096] for m in models], [g[:4096] for g in grads],
         {"scratch": options.scratch, "host_memory_bytes": 64 << 20}).close()  # fmt: skip
    drive_shim = ctypes.CDLL(options.drive_shim)

    def ceiling() -> float:
        return drive_rate(drive_shim, options.scratch)

    def run(name: str, measure: Callable[[Case], dict[str, Any]], **more: Any) -> None:
        if name not in wanted:
            return
        case = Case(plugin, models, grads, {"scratch": options.scratch} | more)
        try:
            keep(name, measure(case))
            if name == "drive":
                keep("beside_products", beside_products(case))
        finally:
            case.close()

    large = 2 * elements * 12
    run("tier", lambda case: bus_bound(case, bus, options.pairs, 12 * elements),
        host_memory_bytes=large)  # fmt: skip
    run("mapped", lambda case: bus_bound(case, bus, options.pairs, 12 * elements),
        host_memory_bytes=large, device_staging_bytes=0)  # fmt: skip
    run("bf16", lambda case: bus_bound(case, bus, options.pairs, 8 * elements),
        host_memory_bytes=large, moments="bf16")  # fmt: skip
    run("drive", lambda case: drive_bound(case, options.pairs, ceiling),
        host_memory_bytes=options.tier_bytes)  # fmt: skip
    run("drive_bf16", lambda case: drive_bound(case, options.pairs, ceiling),
        host_memory_bytes=options.tier_bytes, moments="bf16")  # fmt: skip


if __name__ == "__main__":
    main()
