#!/usr/bin/env bash
# Bit-identity under all combinations of settings that must not matter (10 minutes)
set -euo pipefail
MILLPOND_CAMPAIGN=1 "$BUILD/tests/store/store_test" --gtest_filter='*Settings*' --gtest_brief=1
