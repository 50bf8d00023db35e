"""What the buses of a node's GPUs carry, each alone and all at once, and what its memory allows.

Usage: bus_of_ranks.py [--gib N] [--seconds S]. Needs torch and CUDA devices. For each GPU pinned
memory of N GiB, taken as the plugin takes its tier (mapped, touched, registered). Rates are bytes
per second over the bus, both directions together. A GPU whose rate differs from piece to piece has
some of them behind another socket, also where the machine shows one NUMA node. Where buses are
slower beside each other than alone, the last lines tell whether memory is what they share: then
the processors' reads take from the buses what they get, and the sum stays what it was.
"""

from __future__ import annotations

import argparse
import dataclasses
import mmap
import multiprocessing
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

PIECE = 1 << 30
COPY = 64 << 20  # bytes of one copy
WAYS = {"up": (True, False), "down": (False, True), "both": (True, True)}


@dataclasses.dataclass
class Phase:
    """What everybody does at the same time."""

    name: str
    gpus: dict[int, tuple[bool, bool]]  # which copy, up and down
    reading: bool = False  # the processors


def phases(gpus: int) -> Iterator[Phase]:
    """In their order, the same for all processes."""
    for name, way in WAYS.items():
        for gpu in range(gpus):
            yield Phase(name, {gpu: way})
    for name, way in WAYS.items():
        yield Phase(f"{name}, at once", dict.fromkeys(range(gpus), way))
    yield Phase("up or down in turn", {gpu: (gpu % 2 == 0, gpu % 2 == 1) for gpu in range(gpus)})
    yield Phase("none", {}, reading=True)
    yield Phase("both, the first", {0: WAYS["both"]}, reading=True)
    yield Phase("both, all", dict.fromkeys(range(gpus), WAYS["both"]), reading=True)


def pinned_pieces(count: int) -> list[torch.Tensor]:
    """Memory for copies, mapped with huge pages where they are to be had."""
    region = mmap.mmap(-1, count * PIECE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    region.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(region, dtype=torch.uint8)
    whole.fill_(1)
    code = torch.cuda.cudart().cudaHostRegister(whole.data_ptr(), whole.numel(), 0)
    if int(code) != 0:
        raise RuntimeError(f"cudaHostRegister: {code}")
    return list(whole.split(PIECE))


def copied(host: torch.Tensor, way: tuple[bool, bool], seconds: float) -> float:
    """Bytes per second of both directions together, copied for about that long."""
    there = torch.empty(2, COPY, dtype=torch.uint8, device="cuda")
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    half = host.numel() // 2
    moved, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        for at in range(0, half, COPY):
            if way[0]:
                with torch.cuda.stream(streams[0]):
                    there[0].copy_(host[at : at + COPY], non_blocking=True)
            if way[1]:
                with torch.cuda.stream(streams[1]):
                    host[half + at : half + at + COPY].copy_(there[1], non_blocking=True)
            moved += sum(way) * COPY
        torch.cuda.synchronize()
    return moved / (time.perf_counter() - begin)


def repeated(work: Callable[[], object], size: int, seconds: float) -> float:
    """Bytes per second of a piece of work that moves `size`, for about that long."""
    moved, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        work()
        moved += size
    return moved / (time.perf_counter() - begin)


def on_gpu(gpu: int, arguments: argparse.Namespace, turn: Any, answers: Any) -> None:
    """Goes through all phases in a process of its own."""
    torch.cuda.set_device(gpu)
    pieces = pinned_pieces(arguments.gib)
    copied(pieces[0], WAYS["both"], 0.2)
    rates: list[float | None] = []
    by_piece: list[float] = []
    for phase in phases(torch.cuda.device_count()):
        turn.wait(timeout=60)
        way = phase.gpus.get(gpu)
        rates.append(copied(pieces[0], way, arguments.seconds) if way else None)
    turn.wait(timeout=60)
    for other in range(torch.cuda.device_count()):
        turn.wait(timeout=60)
        if other == gpu:
            by_piece = [copied(piece, WAYS["both"], 0.05) for piece in pieces]
    answers.put((gpu, (rates, by_piece)))


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gib", type=int, default=8, help="pinned memory of each GPU, GiB")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    gpus = torch.cuda.device_count()
    turn, answers = context.Barrier(gpus + 1), context.Queue()
    workers = [
        context.Process(target=on_gpu, args=(gpu, arguments, turn, answers)) for gpu in range(gpus)
    ]
    for worker in workers:
        worker.start()
    source = torch.ones(1 << 30, dtype=torch.float32)
    source.sum()
    read: list[float | None] = []
    for phase in phases(gpus):
        turn.wait(timeout=60)
        if phase.reading:
            read.append(repeated(source.sum, 4 << 30, arguments.seconds))
        else:
            read.append(None)
    turn.wait(timeout=60)
    for _ in range(gpus):
        turn.wait(timeout=60)
    found = dict(answers.get(timeout=90) for _ in workers)
    for worker in workers:
        worker.join()

    def cells(values: list[float | None]) -> str:
        known = [value for value in values if value is not None]
        texts = ["-" if value is None else f"{value / 1e9:.1f}" for value in [*values, sum(known)]]
        return "".join(f"{text:>10}" for text in texts)

    heads = [*(f"GPU {gpu}" for gpu in range(gpus)), "reading", "sum"]
    print(f"{'GB/s':20}" + "".join(f"{head:>10}" for head in heads))
    for at, phase in enumerate(phases(gpus)):
        print(f"{phase.name:20}" + cells([*(found[gpu][0][at] for gpu in range(gpus)), read[at]]))
    for gpu in range(gpus):
        pieces = " ".join(f"{rate / 1e9:.1f}" for rate in found[gpu][1])
        print(f"GPU {gpu}, both ways, piece by piece: {pieces}")
    target = torch.empty_like(source)
    copy = repeated(lambda: target.copy_(source), 8 << 30, 1.0)
    print(f"a copy by all processors, read and written: {copy / 1e9:.1f}")


if __name__ == "__main__":
    main()
