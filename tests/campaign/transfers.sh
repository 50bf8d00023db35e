#!/usr/bin/env bash
# Every transfer of three steps fails in every way, once and for ever, on both engines (10 minutes)
set -euo pipefail
MILLPOND_CAMPAIGN=1 "$BUILD/tests/store/store_fault_test" --gtest_brief=1
