"""`python -m millpond ...` runs the packed `millpond` program: doctor, inspect, verify, ..."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .plugin import ENVIRONMENT, find_plugin


def main() -> int:
    program = Path(__file__).resolve().parent / "bin" / "millpond"
    if not program.is_file():
        print(
            f"millpond: the program is not at {program}: it is part of the installed package "
            "('pip install .'), not of a checkout",
            file=sys.stderr,
        )
        return 2
    os.environ.setdefault(ENVIRONMENT, os.fspath(find_plugin()))
    os.execv(program, [os.fspath(program), *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
