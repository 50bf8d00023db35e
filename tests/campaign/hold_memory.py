"""Holds memory until it is killed: takes what is available but for the first argument's bytes, then
makes the file that the second names. Several may run side by side."""

from __future__ import annotations

import mmap
import pathlib
import sys
import time

CHUNK = 64 << 20
POPULATE_WRITE = 23  # MADV_POPULATE_WRITE


def available() -> int:
    for line in pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0


def main() -> None:
    leave, told = int(sys.argv[1]), pathlib.Path(sys.argv[2])
    held: list[mmap.mmap] = []
    waited = 0
    # A machine whose hypervisor adds memory as it is used gets a second to do so.
    while waited < 5:
        if available() < leave + CHUNK:
            waited += 1
            time.sleep(0.2)
            continue
        waited = 0
        chunk = mmap.mmap(-1, CHUNK)
        chunk.madvise(mmap.MADV_HUGEPAGE)
        chunk.madvise(POPULATE_WRITE)
        held.append(chunk)
    told.touch()
    time.sleep(3600)


if __name__ == "__main__":
    main()
