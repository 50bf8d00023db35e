#!/usr/bin/env bash
# How long save_to keeps a training of SAVE_GB (12) waiting: linked, and copied to another filesystem (10 minutes)
#
# Needs a quiet machine and three times SAVE_GB on the drive of SCRATCH. SAVE_ELSEWHERE: a directory on another
# filesystem for the copy (not measured without one).
set -euo pipefail
export SAVE_GB=${SAVE_GB:-12}
test=$BUILD/tests/checkpoint/checkpoint_save_time_test
"$test"
[ -z "${SAVE_ELSEWHERE:-}" ] || SAVE_TO=$(mktemp -d -p "$SAVE_ELSEWHERE") "$test"
