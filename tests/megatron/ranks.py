"""Starts Python programs on several gloo ranks, and never leaves one behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT_S = 600


def core_path(release: str) -> Path | None:
    """Where a release of megatron-core is installed by itself: MILLPOND_MEGATRON/<release>."""
    base = os.environ.get("MILLPOND_MEGATRON", "")
    found = Path(base) / release
    return found if base and (found / "megatron" / "core").is_dir() else None


def environment(release: str | Path) -> dict[str, str]:
    """`release`: of megatron-core, or the path of a full Megatron-LM tree."""
    core = release if isinstance(release, Path) else core_path(release)
    extra = Path(os.environ.get("MILLPOND_MEGATRON", "")) / "extra"
    paths: list[Any] = [core, extra, ROOT / "host_adapters" / "python", ROOT / "examples", HERE]
    package = os.environ.get("MILLPOND_PACKAGE")  # a package that is not in this tree
    if package:
        paths.insert(0, package)
    if "PYTHONPATH" in os.environ:
        paths.append(os.environ["PYTHONPATH"])
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(str(path) for path in paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    }


def launch(
    release: str | Path, arguments: list[str], ranks: int = 2, limit_s: int = LIMIT_S,
    **variables: str,
) -> list[subprocess.CompletedProcess[str]]:  # fmt: skip
    """Runs `python <arguments>` once a rank, in a process group that is killed after the limit.
    `variables`: further ones of the environment."""
    with tempfile.TemporaryDirectory() as directory:
        leader: int | None = None
        running = []
        for rank in range(ranks):
            env = environment(release) | {
                "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
                "MILLPOND_RENDEZVOUS": f"{directory}/ranks",
            } | variables  # fmt: skip
            output = open(f"{directory}/{rank}", "w+")  # noqa: SIM115 - read after the process ends
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", *arguments], env=env, cwd=HERE, text=True,
                stdout=output, stderr=subprocess.STDOUT, process_group=leader or 0,
            )  # fmt: skip
            leader = leader or process.pid
            running.append((process, output))
        assert leader is not None
        try:
            _wait([process for process, _ in running], limit_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(leader, signal.SIGKILL)
        done = []
        for process, output in running:
            process.wait()
            output.seek(0)
            done.append(
                subprocess.CompletedProcess(process.args, process.returncode, output.read())
            )
            output.close()
        return done


def _wait(running: list[subprocess.Popen[str]], limit_s: int) -> None:
    """Until all have ended, a while after one has failed, or the limit."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        codes = [process.poll() for process in running]
        if all(code is not None for code in codes):
            return
        if any(codes):
            end = min(end, time.monotonic() + 20)
        time.sleep(0.05)
