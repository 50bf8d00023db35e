#!/usr/bin/env bash
# Two steps of one shard of more than 2^32 elements (3 minutes, 26 GB of space)
set -euo pipefail
"$BUILD/tests/store/store_machine_test" --gtest_filter='Campaign.one_shard*' | tee "$SCRATCH/log"
! grep -q SKIPPED "$SCRATCH/log" || { echo "30 GB of free space are needed (--scratch)"; exit 77; }
