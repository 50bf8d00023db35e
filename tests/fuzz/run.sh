#!/usr/bin/env bash
# Builds the fuzz targets with clang, libFuzzer, ASan and UBSan, and runs each for a while.
#
#   bash tests/fuzz/run.sh [SECONDS] [TARGET...]    60 seconds each by default; profile, options, manifest, commit
#
# New inputs and findings go to build/fuzz/found/<target>/; the committed corpus is only read. Exit code: 0 when no
# target found anything.
set -euo pipefail
cd "$(dirname "$0")/../.."

seconds=${1:-60}
[ $# -gt 0 ] && shift
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(profile options manifest commit)
build=build/fuzz

for tool in cmake ninja clang clang++; do
  command -v "$tool" >/dev/null || { echo "tests/fuzz/run.sh: $tool is missing; tests/run.sh installs it" >&2; exit 2; }
done
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
cmake -S . -B "$build" -G Ninja "${launcher[@]}" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ \
  -DMILLPOND_FUZZ=ON -DMILLPOND_CUDA=OFF -DMILLPOND_SANITIZE=address,undefined >/dev/null
cmake --build "$build" --target millpond_fuzzers

run_one() { # target
  local found=$build/found/$1 corpus=tests/fuzz/corpus/$1 dictionary=tests/fuzz/$1.dict
  mkdir -p "$found"
  local arguments=(-max_total_time="$seconds" -max_len=16384 -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=256
    -artifact_prefix="$found/finding-" -print_final_stats=1)
  [ -f "$dictionary" ] && arguments+=(-dict="$dictionary")
  if "$build/tests/fuzz/fuzz_$1" "${arguments[@]}" "$found" "$corpus" >"$build/$1.log" 2>&1; then
    printf '%-10s clean after %s runs\n' "$1" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$1.log")"
  else
    tail -n 40 "$build/$1.log"
    printf '%-10s FOUND SOMETHING: see above, and %s\n' "$1" "$found"
    return 1
  fi
}
export -f run_one
export build seconds

# As many at once as there are processors; xargs fails when one of them did.
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run_one {}'
