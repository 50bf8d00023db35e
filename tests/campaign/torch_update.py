"""The plugin's update against torch's fused CPU AdamW: same tensors, same threads, in turns.

Both update fp32 parameters that are their own mains with fp32 gradients and moments: torch's step
writes no bf16 copy of the parameters, so the plugin's is timed without one.
Usage: torch_update.py RESULT.json; MILLPOND_PLUGIN names the plugin.
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import sys
import time

import torch
from millpond import abi
from millpond.errors import error_of
from millpond.plugin import Plugin, fresh_status, str_of

ELEMENTS = 64 << 20
ROUNDS = 9
SINK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, abi.Str)
ENTRY = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    abi.Str,
    SINK,
    ctypes.c_void_p,
    ctypes.POINTER(abi.Status),
)


class ExtProbe(ctypes.Structure):
    """probe/1, as millpond/probe.h has it."""

    _fields_ = [
        ("header", abi.Header),
        ("machine", ENTRY),
        ("directory", ENTRY),
        ("ceilings", ENTRY),
    ]


def update_seconds(entry: object, threads: int) -> float:
    """One timed update of ELEMENTS elements by the plugin."""
    answer: list[bytes] = []

    @SINK
    def sink(_context: int | None, piece: abi.Str) -> None:
        answer.append(ctypes.string_at(piece.ptr, piece.len))

    request = {
        "measure": ["update"],
        "elements": ELEMENTS,
        "parameters": "fp32",
        "moments": "fp32",
        "gradients": "fp32",
        "threads": threads,
        "rounds": 3,
    }
    status = fresh_status()
    if entry(None, str_of(json.dumps(request)), sink, None, ctypes.byref(status)) != 0:  # type: ignore[operator]
        raise error_of(status)
    return float(json.loads(b"".join(answer))["update"]["update_s"])


def main() -> None:
    """Writes both times and their ratio."""
    threads = torch.get_num_threads()
    table = Plugin(os.environ["MILLPOND_PLUGIN"]).table
    address = table.get_extension(None, str_of("probe/1"))
    probe = ctypes.cast(address, ctypes.POINTER(ExtProbe)).contents
    parameter = torch.nn.Parameter(torch.randn(ELEMENTS))
    parameter.grad = torch.randn(ELEMENTS)
    optimizer = torch.optim.AdamW([parameter], lr=1e-3, fused=True)
    optimizer.step()
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(ROUNDS):
        best = []
        for _ in range(3):
            begin = time.perf_counter()
            optimizer.step()
            best.append(time.perf_counter() - begin)
        theirs.append(statistics.median(best))
        ours.append(update_seconds(probe.ceilings, threads))
    ratio = statistics.median(t / o for t, o in zip(theirs, ours, strict=True))
    figures = {
        "threads": threads,
        "elements": ELEMENTS,
        "torch_s": theirs,
        "update_s": ours,
        "torch_over_ours": ratio,
    }
    with open(sys.argv[1], "w") as file:
        json.dump(figures, file)


if __name__ == "__main__":
    main()
