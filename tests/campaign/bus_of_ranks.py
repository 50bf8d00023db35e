"""What the buses of a node's GPUs carry, each alone and all at once.

Usage: bus_of_ranks.py [--gib N] [--seconds S]. Needs torch and a CUDA device. For each GPU pinned
memory of N GiB in pieces, taken as the plugin takes its tier (mapped, touched, registered); rates
to the device, from it and both ways at once. A GPU whose rate differs from piece to piece has some
of them behind another socket, also where the machine shows one NUMA node. The last lines have the
rate of the processors' own copies, which share the memory with the buses.
"""

from __future__ import annotations

import argparse
import mmap
import multiprocessing
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

PIECE = 1 << 30
COPY = 64 << 20  # bytes of one copy


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


def rate(host: torch.Tensor, up: bool, down: bool, seconds: float) -> float:
    """Bytes per second of both directions together, copied for about that long."""
    there = torch.empty(2, COPY, dtype=torch.uint8, device="cuda")
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    half = host.numel() // 2
    moved, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        for at in range(0, half, COPY):
            if up:
                with torch.cuda.stream(streams[0]):
                    there[0].copy_(host[at : at + COPY], non_blocking=True)
            if down:
                with torch.cuda.stream(streams[1]):
                    host[half + at : half + at + COPY].copy_(there[1], non_blocking=True)
            moved += (up + down) * COPY
        torch.cuda.synchronize()
    return moved / (time.perf_counter() - begin)


def on_gpu(gpu: int, arguments: argparse.Namespace, turn: Any, answers: Any) -> None:
    """Measures alone when it is this GPU's turn, then with all others."""
    torch.cuda.set_device(gpu)
    pieces = pinned_pieces(arguments.gib)
    rate(pieces[0], True, True, 0.2)
    found: dict[str, Any] = {}
    for other in range(torch.cuda.device_count()):
        turn.wait()
        if other == gpu:
            found["pieces"] = [rate(piece, True, True, 0.05) for piece in pieces]
            for name, up, down in (("up", 1, 0), ("down", 0, 1), ("both", 1, 1)):
                found[name] = rate(pieces[0], bool(up), bool(down), arguments.seconds)
    for name, up, down in (("up", 1, 0), ("down", 0, 1), ("both", 1, 1)):
        turn.wait()
        found[f"{name}_at_once"] = rate(pieces[0], bool(up), bool(down), arguments.seconds)
    turn.wait()
    # Every second GPU up, the others down: nothing of one direction's way is shared.
    found["crossed"] = rate(pieces[0], gpu % 2 == 0, gpu % 2 == 1, arguments.seconds)
    answers.put((gpu, found))


def processors() -> float:
    """Bytes read and written per second by copies of all processors together."""
    source = torch.ones(4 << 30, dtype=torch.uint8)
    target = torch.empty_like(source)
    copy: Callable[[], object] = lambda: target.copy_(source)  # noqa: E731
    copy()
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        copy()
        seconds.append(time.perf_counter() - begin)
    return 2 * source.numel() / statistics.median(seconds)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gib", type=int, default=8, help="pinned memory of each GPU, GiB")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    gpus = torch.cuda.device_count()
    turn, answers = context.Barrier(gpus), context.Queue()
    workers = [
        context.Process(target=on_gpu, args=(gpu, arguments, turn, answers)) for gpu in range(gpus)
    ]
    for worker in workers:
        worker.start()
    found = dict(answers.get(timeout=300) for _ in workers)
    for worker in workers:
        worker.join()
    print(
        "GB/s           "
        + "".join(f"{'GPU ' + str(gpu):>10}" for gpu in range(gpus))
        + f"{'sum':>10}"
    )
    for name in ("up", "down", "both", "up_at_once", "down_at_once", "both_at_once", "crossed"):
        rates = [found[gpu][name] / 1e9 for gpu in range(gpus)]
        print(f"{name:15}" + "".join(f"{r:10.1f}" for r in rates) + f"{sum(rates):10.1f}")
    for gpu in range(gpus):
        pieces = " ".join(f"{r / 1e9:.1f}" for r in found[gpu]["pieces"])
        print(f"GPU {gpu}, both ways, piece by piece: {pieces}")
    print(f"processors, read and written: {processors() / 1e9:.1f}")


if __name__ == "__main__":
    main()
