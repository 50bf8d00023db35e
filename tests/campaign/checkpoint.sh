#!/usr/bin/env bash
# Checkpoints killed and powered off at every system call, damaged in every byte, on 100 kinds of full disks (5 minutes)
set -euo pipefail
export MILLPOND_CAMPAIGN=1
"$BUILD/tests/checkpoint/checkpoint_kill_test"
"$BUILD/tests/checkpoint/checkpoint_store_test" --gtest_filter='Damage.*:*FullDisk*:*ResumeEverywhere*:LoadMemory.*'
"$BUILD/tests/files/files_test" --gtest_filter='ThousandRanks.*'
