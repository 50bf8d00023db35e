#!/usr/bin/env bash
# clang-tidy over the sources of the release build. Argument: parallel jobs.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-2}
git ls-files 'kernels/*.cc' 'checkpoint/*.cc' 'plugin/*.cc' 'host_adapters/*.cc' |
  xargs -P "$jobs" -n 2 clang-tidy -p build/asan --quiet
echo "clang-tidy: clean"
