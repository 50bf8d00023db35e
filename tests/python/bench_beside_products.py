"""A measurement, not a test: a drive-bound step on a GPU and large matrix products on another
stream of the same process, each alone and both at once, as JSON. `millpond bench --device cuda:0`
measures everything else.

    python3 bench_beside_products.py --plugin libmillpond.so --scratch /mnt/nvme --out figures.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from typing import Any

import torch
from millpond_cuda import stream_of
from millpond_host import Plugin, Runtime, Store, adamw
from millpond_shards import Memory, Shard


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


def timed_step(store: Store) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    store.step([adamw(0, 1e-4)])
    return time.perf_counter() - begin


def beside_products(store: Store, pairs: int) -> dict[str, Any]:
    products = Products()
    alone, beside, products_alone, products_beside = [], [], [], []
    products.batch()
    for _ in range(pairs):
        with products:
            time.sleep(1)
        products_alone.append(statistics.median(products.seconds))
        alone.append(timed_step(store))
        with products:
            beside.append(timed_step(store))
        products_beside.append(statistics.median(products.seconds))
    step_ratios = [b / a for a, b in zip(alone, beside, strict=True)]
    ratios = [b / a for a, b in zip(products_alone, products_beside, strict=True)]
    return {
        "step_alone_s": alone, "step_beside_s": beside,
        "product_alone_s": products_alone, "product_beside_s": products_beside,
        "step_slower": statistics.median(step_ratios), "product_slower": statistics.median(ratios),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("plugin", "scratch", "out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--layers", type=int, default=24, help="matrices")
    parser.add_argument("--width", type=int, default=8192, help="rows and columns of each")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--moments", default="bf16")
    parser.add_argument("--tier-bytes", type=int, default=10 << 30)
    options = parser.parse_args()
    numel = options.width * options.width
    models = [
        torch.randn(numel, device="cuda", dtype=torch.bfloat16) for _ in range(options.layers)
    ]
    grads = [torch.randn_like(model) * 1e-3 for model in models]
    runtime = Runtime(
        Plugin(options.plugin),
        {"scratch": options.scratch, "host_memory_bytes": options.tier_bytes,
         "moments": options.moments, "log_level": "warning"},
    )  # fmt: skip
    store = runtime.store()
    store.stream = stream_of()
    shards = [
        Shard(i, f"layer{i}", Memory.of_torch(m), Memory.of_torch(g))
        for i, (m, g) in enumerate(zip(models, grads, strict=True))
    ]
    store.bind(shards, runtime.plugin.profile(shards, "torch_cuda_fused/2"))
    for _ in range(2):
        timed_step(store)
    figures = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "elements": options.layers * numel, "tier_bytes": options.tier_bytes,
        "moments": options.moments,
    } | beside_products(store, options.pairs)  # fmt: skip
    last = store.last_step()
    figures |= {"bytes_read": last.bytes_read, "bytes_written": last.bytes_written}
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(figures, file, indent=1)
    print(json.dumps({k: v for k, v in figures.items() if not isinstance(v, list)}))
    runtime.destroy()


if __name__ == "__main__":
    main()
