#!/usr/bin/env bash
# Installs what the tests need, builds, runs all tests, ends with a summary. Can be run again; writes under build/ only.
#
#   bash tests/run.sh            everything: formatting, release tests, torch, ASan and UBSan, TSan, fuzzing
#   bash tests/run.sh --tidy     the same and clang-tidy over all sources
#   bash tests/run.sh --quick    the inner loop: release build and the CPU tests without torch
#   bash tests/run.sh --no-install   trust that packages and the Python environment are there
#
# Exit code: 0 when every stage passed. Results of each stage: build/results/.
set -euo pipefail
cd "$(dirname "$0")/.."
source tests/packages.sh

quick=0 install=1 tidy=0
for argument in "$@"; do
  case "$argument" in
    --quick) quick=1 ;;
    --no-install) install=0 ;;
    --tidy) tidy=1 ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "tests/run.sh: unknown argument '$argument' (see --help)" >&2; exit 2 ;;
  esac
done

jobs=$(nproc)
results=build/results
mkdir -p "$results"
rm -f "$results"/*.xml "$results"/*.log
failed=()
started=$(date +%s)
python=python3

say() { printf '\n[%4d s] %s\n' $(($(date +%s) - started)) "$*"; }
# stage NAME COMMAND...: its output goes to a log; the end of it is shown where it fails.
stage() {
  local name=$1
  shift
  say "$name"
  if "$@" >"$results/$name.log" 2>&1; then
    tail -n 3 "$results/$name.log" | sed 's/^/    /'
  else
    failed+=("$name")
    tail -n 60 "$results/$name.log" | sed 's/^/    /'
  fi
}
configure_build() { # preset, further cmake arguments
  local preset=$1
  shift
  cmake --preset "$preset" -DMILLPOND_PYTHON="$python" "$@" && cmake --build --preset "$preset" -j "$jobs"
}
tests_of() { # preset, further ctest arguments
  local preset=$1
  shift
  ctest --test-dir "build/$preset" --output-on-failure -j "$jobs" --output-junit "$PWD/$results/$preset.xml" "$@"
}
check_format() {
  git ls-files -z '*.h' '*.hpp' '*.c' '*.cc' '*.cu' '*.cuh' | xargs -0 -r clang-format --dry-run --Werror &&
    "$python" -m ruff check . && "$python" -m ruff format --check . && "$python" -m mypy && echo "clang-format, ruff and mypy: clean"
}
python_environment() {
  [ -x build/venv/bin/python ] || python3 -m venv build/venv
  build/venv/bin/python -m pip install -q --disable-pip-version-check -r tests/python/requirements.txt
  # Megatron is tested in several releases, each in a folder of its own.
  local pip="build/venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --target" release
  for release in 0.10.0 0.13.1 0.16.1; do
    [ -d "build/megatron/$release" ] || $pip "build/megatron/$release" "megatron-core==$release"
  done
  [ -d build/megatron/extra ] || $pip build/megatron/extra psutil einops packaging
}

if [ "$install" -eq 1 ]; then
  say "Debian packages"
  install_packages "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
  if [ "$quick" -eq 0 ]; then
    say "Python environment with torch (build/venv)"
    python_environment
  fi
fi
[ -x build/venv/bin/python ] && python=$PWD/build/venv/bin/python

# One GPU architecture: compiling for all of them is the release's business.
stage build-release configure_build release -DCMAKE_CUDA_ARCHITECTURES=90-real
if [ "$quick" -eq 1 ]; then
  stage test-release tests_of release -LE 'torch|slow'
else
  stage format check_format
  stage test-release tests_of release
  stage build-asan configure_build asan
  stage test-asan tests_of asan -LE 'torch|slow|gpu'
  stage build-tsan configure_build tsan
  stage test-tsan tests_of tsan -LE 'torch|slow|gpu|serial'
  stage fuzz bash tests/fuzz/run.sh 60
  [ "$tidy" -eq 0 ] || stage clang-tidy bash tests/tidy.sh "$jobs"
fi

say "summary"
"$python" - "$results" "${failed[@]+"${failed[@]}"}" <<'PYTHON'
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

passed = bad = skipped = 0
reasons = {}
for report in sorted(pathlib.Path(sys.argv[1]).glob("*.xml")):
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        status = case.get("status")
        if case.find("failure") is not None or status == "fail":
            bad += 1
            print(f"  failed   {report.stem}: {case.get('name')}")
        elif case.find("skipped") is not None or status in ("notrun", "disabled"):
            skipped += 1
            reasons.setdefault(case.get("name"), report.stem)
        else:
            passed += 1
for name, where in sorted(reasons.items()):
    print(f"  skipped  {where}: {name}")
stages = [name for name in sys.argv[2:] if not name.startswith("test-")]
for name in stages:
    print(f"  failed   stage {name}")
print(f"{passed} passed, {bad + len(stages)} failed, {skipped} skipped")
PYTHON
[ ${#failed[@]} -eq 0 ] || { echo "failed stages: ${failed[*]} (logs in $results/)" >&2; exit 1; }
