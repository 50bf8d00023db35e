"""Runs a function of a test's worker file in several processes of one gloo group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

LIMIT_S = 240


def run_ranks(worker: str, case: str, ranks: int, folder: Path, *arguments: Any) -> None:
    """worker: a file beside this one; its `case` is called as case(folder, *arguments) in every
    process. The whole process group is killed when one does not end in time."""
    rendezvous = folder / f"rendezvous_{case}_{ranks}_{os.urandom(4).hex()}"
    processes = [
        subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / worker), case, str(folder)]
            + [str(a) for a in arguments],
            env=os.environ
            | {
                "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(ranks), "RENDEZVOUS": str(rendezvous),
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    outputs = []
    try:
        for process in processes:
            outputs.append(process.communicate(timeout=LIMIT_S)[0])
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    for rank, (process, output) in enumerate(zip(processes, outputs, strict=True)):
        assert process.returncode == 0, f"rank {rank} of {case}:\n{output[-4000:]}"


def main(cases: dict[str, Any]) -> None:
    """The worker's end."""
    import torch.distributed as dist

    dist.init_process_group(
        "gloo",
        init_method=f"file://{os.environ['RENDEZVOUS']}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    try:
        cases[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
        dist.barrier()
    finally:
        dist.destroy_process_group()
