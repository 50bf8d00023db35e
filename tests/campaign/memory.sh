#!/usr/bin/env bash
# 4 GiB of state in a memory control group of 256 MiB, direct and buffered (2 minutes, root, 5 GB of space)
set -euo pipefail
"$BUILD/tests/store/store_machine_test" --gtest_filter='Campaign.MemoryGroup*' | tee "$SCRATCH/log"
! grep -q SKIPPED "$SCRATCH/log" || { echo "no control group (v1) with a memory limit can be made here"; exit 77; }
