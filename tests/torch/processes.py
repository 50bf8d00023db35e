"""Runs functions of a test's worker file in several processes of one group: gloo on CPUs, nccl and
nothing beside it where MILLPOND_TEST_DEVICE is cuda."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LIMIT_S = 200


def run_limited(commands: list[list[str]], environments: list[dict[str, str]]) -> list[Any]:
    """Runs all at once, each as the leader of a session; returns CompletedProcesses with stdout and
    stderr in one. What does not end within LIMIT_S seconds is killed with its children, and its
    last words are where its threads stood (`dump_when_late`)."""
    processes = [
        subprocess.Popen(
            command, env=os.environ | environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )
        for command, environment in zip(commands, environments, strict=True)
    ]  # fmt: skip
    end = time.monotonic() + LIMIT_S
    outputs = []
    try:
        for process in processes:
            try:
                outputs.append(process.communicate(timeout=max(end - time.monotonic(), 0.1))[0])
            except subprocess.TimeoutExpired:
                outputs.append(f"{end_late(process)}\nkilled after {LIMIT_S} s")
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return [
        subprocess.CompletedProcess(process.args, process.returncode, output)
        for process, output in zip(processes, outputs, strict=True)
    ]


def end_late(process: subprocess.Popen[str]) -> str:
    """What it had said. torchrun ends its ranks, which have sessions of their own, when asked."""
    for word in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, word)
        try:
            return process.communicate(timeout=20)[0]
        except subprocess.TimeoutExpired:
            continue
    return "(its output is held open by a process that it has left)"


def dump_when_late() -> None:
    """A worker's first call."""
    faulthandler.dump_traceback_later(LIMIT_S - 10, exit=False)


def run_ranks(worker: str, ranks: int, folder: Path, *cases: str) -> None:
    """worker: a file beside this one. Each case, "name" or "name,argument,...", is called in turn
    in every process, with a folder of its own below `folder`: starting torch takes longer than most
    cases."""
    rendezvous = folder / f"rendezvous_{ranks}_{os.urandom(4).hex()}"
    command = [sys.executable, str(Path(__file__).parent / worker), str(folder), *cases]
    done = run_limited(
        [command] * ranks,
        [
            {
                "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(ranks), "RENDEZVOUS": str(rendezvous),
                "OMP_NUM_THREADS": "1",
            }
            for rank in range(ranks)
        ],
    )  # fmt: skip
    said = "\n".join(
        f"rank {rank} of {cases}: {one.returncode}\n{one.stdout[-4000:]}"
        for rank, one in enumerate(done)
        if one.returncode != 0
    )
    assert not said, said


def main(cases: dict[str, Any]) -> None:
    """The worker's end."""
    import torch
    import torch.distributed as dist

    dump_when_late()
    on_cuda = os.environ.get("MILLPOND_TEST_DEVICE") == "cuda"
    if on_cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(
        "nccl" if on_cuda else "gloo",
        init_method=f"file://{os.environ['RENDEZVOUS']}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    try:
        for text in sys.argv[2:]:
            name, *arguments = text.split(",")
            place = Path(sys.argv[1]) / re.sub(r"\W", "_", text)[:80]
            place.mkdir(exist_ok=True)
            dist.barrier()
            if dist.get_rank() == 0:
                print("case", text, flush=True)
            cases[name](place, *arguments)
        dist.barrier()
    finally:
        dist.destroy_process_group()
