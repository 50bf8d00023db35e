#!/usr/bin/env bash
# SIGKILL at every system call of a save over a good checkpoint (about 15 minutes)
set -euo pipefail
MILLPOND_CAMPAIGN=1 "$BUILD/tests/checkpoint/checkpoint_kill_test"
