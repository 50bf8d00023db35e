#!/usr/bin/env bash
# tests/mutate.sh: each thing that keeps state safe is taken away and must be missed by a test (10 minutes)
set -euo pipefail
exec bash tests/mutate.sh
