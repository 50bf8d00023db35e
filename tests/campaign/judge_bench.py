"""Prints a line for each figure of tests/campaign/bench.sh: wanted, got, and whether it holds.

Usage: judge_bench.py DIRECTORY. A figure whose run is absent has no line. Exit code 1 where a
figure misses.
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import sys
from typing import Any

MIB = 1 << 20
folder = pathlib.Path(sys.argv[1])
missed = 0


def run(name: str) -> dict[str, Any] | None:
    """The figures of one run, or None."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() and path.stat().st_size else None


def line(figure: str, wanted: str, got: str, holds: bool | None) -> None:
    """One figure; holds None: for information only."""
    global missed
    verdict = {True: "holds", False: "MISSES", None: "-"}[holds]
    missed += holds is False
    print(f"{verdict:7} {figure:58} wanted {wanted:22} got {got}")


def at_least(figure: str, wanted: float, got: float, unit: str = "") -> None:
    """A figure that must reach a bound."""
    line(figure, f">= {wanted:g}{unit}", f"{got:.3f}{unit}", got >= wanted)


def listed(values: list[float | None]) -> str:
    """The values behind a median."""
    return " ".join("-" if v is None else f"{v:.3f}" for v in values)


def median_step(figures: dict[str, Any]) -> float:
    """Seconds of a step until its last write is through."""
    return statistics.median(figures["settled_s"])


def judge_drive() -> None:
    """The raw ceiling against fio."""
    ratios = []
    for pair in range(1, 4):
        ours, fio = run(f"drive{pair}"), run(f"fio{pair}")
        if ours is None or fio is None:
            continue
        job = fio["jobs"][0]
        theirs = job["read"]["bw_bytes"] + job["write"]["bw_bytes"]
        mixed = next(r["bytes_per_s"] for r in ours["drive"]["rates"] if 0 < r["read_share"] < 1)
        ratios.append(mixed / theirs)
    if ratios:
        ratio = statistics.median(ratios)
        line(
            "raw mixed ceiling / fio",
            "0.9 .. 1.1",
            f"{ratio:.3f} ({listed(ratios)})",
            0.9 <= ratio <= 1.1,
        )


def judge_memory(name: str, figures: dict[str, Any]) -> None:
    """The peak of memory over what the host holds and the tier."""
    if figures["rss_peak_bytes"] is None:
        return
    over = (figures["rss_peak_bytes"] - figures["rss_host_bytes"] - figures["tier_bytes"]) / MIB
    line(f"{name}: memory over host and tier", "<= 64 MiB", f"{over:.1f} MiB", over <= 64)


def judge_serial(name: str, figures: dict[str, Any]) -> None:
    """The serial store against buffered fio, and the ratio beside what the rates predict."""
    for direction in ("read", "write"):
        fio = run(f"fio_{direction}")
        if fio is None or figures["serial"] is None:
            continue
        ours = statistics.median(figures["serial"][f"{direction}_bytes_per_s"])
        at_least(
            f"{name}: serial {direction} / buffered fio",
            0.8,
            ours / fio["jobs"][0][direction]["bw_bytes"],
        )
    predicted = figures["predicted_speedup"]
    line(
        f"{name}: faster than serial",
        "-",
        f"{figures['speedup']:.2f} x; rates predict {predicted:.2f} x",
        None,
    )


def judge_tiers() -> None:
    """1 GiB and 8 GiB of tier for 12 GB of state."""
    small = run("small_tier")
    if small:
        efficiency = small["drive_efficiency"]
        pairs = listed(small["drive_efficiency_list"])
        line(
            "small tier: drive efficiency",
            ">= 0.95",
            f"{efficiency:.3f} ({pairs})",
            efficiency >= 0.95,
        )
        line(
            "small tier: bandwidth in the BindReport",
            "measured",
            small["expected_drive_source"],
            small["expected_drive_source"] == "measured",
        )
        judge_memory("small tier", small)
        judge_serial("small tier", small)
    large = run("large_tier")
    if large:
        judge_serial("large tier", large)
        at_least("large tier: faster than serial, same memory", 2.0, large["speedup"], " x")
        judge_memory("large tier", large)


def judge_update() -> None:
    """State that fits the tier, and the update itself."""
    for name, wanted in (("resident", True), ("moments_bf16_resident", False)):
        figures = run(name)
        if not figures:
            continue
        ratio = figures["update_bytes_per_s"] / figures["update_ceiling_bytes_per_s"]
        if wanted:
            at_least(f"{name}: step / the update's own speed", 0.8, figures["update_efficiency"])
            at_least(f"{name}: update / same loads and stores", 0.9, ratio)
            judge_memory(name, figures)
        else:
            line(f"{name}: update / same loads and stores", "-", f"{ratio:.3f}", None)
    torch = run("torch")
    if torch:
        at_least(
            "update / torch's fused AdamW, same tensors and threads", 1.0, torch["torch_over_ours"]
        )


def judge_moments() -> None:
    """bf16 moments and a tier of the same share of the state: 8/12 of the bytes and of the time."""
    moved, times = [], []
    for pair in range(1, 4):
        fp32, bf16 = run(f"moments_fp32_{pair}"), run(f"moments_bf16_{pair}")
        if not (fp32 and bf16):
            continue
        traffic = [f["bytes_per_step_read"] + f["bytes_per_step_written"] for f in (bf16, fp32)]
        moved.append(traffic[0] / traffic[1])
        times.append(median_step(bf16) / median_step(fp32))
    if moved:
        share, time = statistics.median(moved), statistics.median(times)
        line(
            "bf16 moments: bytes of a step",
            "0.667 of fp32's",
            f"{share:.3f}",
            share <= 0.68,
        )
        line(
            "bf16 moments: time of a step",
            "0.667 of fp32's",
            f"{time:.3f} ({listed(times)})",
            time <= 0.70,
        )


def judge_scaling() -> None:
    """Time a parameter in units of its own run's ceiling."""
    costs = []
    for millions in (50, 200, 1000, 2000):
        figures = run(f"scale{millions}")
        if figures and figures["raw_mixed_bytes_per_s"]:
            costs.append(
                median_step(figures) * figures["raw_mixed_bytes_per_s"] / figures["params"]
            )
    if len(costs) > 1:
        spread = max(costs) / min(costs)
        line(
            "50 M to 2 B parameters: ceiling bytes a parameter",
            "within 10 %",
            f"{spread:.3f} ({listed(costs)})",
            spread <= 1.10,
        )


def judge_reference() -> None:
    """Against the Python store's seconds."""
    for name, variable, wanted in (
        ("reference", "REFERENCE_S", 12),
        ("reference_10gib", "REFERENCE_10GIB_S", 2.5),
    ):
        figures = run(name)
        if figures and figures["params"] == 600_000_000:
            theirs = float(os.environ[variable])
            at_least(
                f"{name}: faster than the Python store's {theirs} s",
                wanted,
                theirs / median_step(figures),
                " x",
            )


judge_drive()
judge_tiers()
judge_update()
judge_moments()
judge_scaling()
judge_reference()
sys.exit(1 if missed else 0)
