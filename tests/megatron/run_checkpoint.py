"""On a rank: scenarios of checkpoints, steps and phases, one after another.

python run_checkpoint.py DIRECTORY CASE:SCENARIO[:ARGUMENT]...
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import job


def main(where: str, *wanted: str) -> None:
    rank = job.start()
    os.environ["MILLPOND_SCRATCH"] = tempfile.mkdtemp()
    import scenarios_guard
    import scenarios_import
    import scenarios_reshard
    import scenarios_save
    import scenarios_step
    import torch.distributed as dist
    from cases import CASES

    modules = (scenarios_guard, scenarios_import, scenarios_reshard, scenarios_save, scenarios_step)
    for one in wanted:
        name, scenario, *arguments = one.split(":")
        run = next(getattr(m, scenario) for m in modules if hasattr(m, scenario))
        case = CASES[name]
        job.lay_out(case.tp, case.ep, case.etp, case.pp)
        began = time.monotonic()
        run(name, Path(where), *arguments)
        dist.barrier()
        if rank == 0:
            print(f"{one}: good, {time.monotonic() - began:.1f} s", flush=True)
    shutil.rmtree(os.environ["MILLPOND_SCRATCH"])


if __name__ == "__main__":  # Megatron's writers import this file again
    main(*sys.argv[1:])
