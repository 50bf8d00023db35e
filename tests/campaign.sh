#!/usr/bin/env bash
# The versions of tests that take minutes to hours, run by hand. Each section is a script of tests/campaign/.
#
#   bash tests/campaign.sh                    all sections
#   bash tests/campaign.sh kills transfers    these only
#   bash tests/campaign.sh --list             sections, what they do, how long they take
#   bash tests/campaign.sh --build DIR        a build of the tree (default: build/release, built here)
#   bash tests/campaign.sh --scratch DIR      where scratch files and saves go (default: build/campaign; a real drive)
#
# Exit code: 0 when every section passed or said why it cannot run here. Logs: build/campaign/<section>.log.
#
# A section runs in the root of the tree with BUILD (the build), SCRATCH (an empty directory of its own, removed
# afterwards) and TMPDIR (the same); exit code 77 means that it cannot run here, and its last line says why.
set -euo pipefail
cd "$(dirname "$0")/.."

build='' scratch=$PWD/build/campaign list=0 sections=()
while [ $# -gt 0 ]; do
  case "$1" in
    --list) list=1 ;;
    --build) build=$(realpath "${2:?--build needs a directory}"); shift ;;
    --scratch) scratch=$(realpath "${2:?--scratch needs a directory}"); shift ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "tests/campaign.sh: unknown option '$1' (see --help)" >&2; exit 2 ;;
    *) sections+=("$1") ;;
  esac
  shift
done
if [ ${#sections[@]} -eq 0 ]; then
  for script in tests/campaign/*.sh; do sections+=("$(basename "$script" .sh)"); done
fi
for section in "${sections[@]}"; do
  script=tests/campaign/$section.sh
  [ -f "$script" ] || { echo "tests/campaign.sh: no section '$section' (see --list)" >&2; exit 2; }
  [ "$list" -eq 0 ] || printf '%-12s %s\n' "$section" "$(sed -n '2s/^# //p' "$script")"
done
[ "$list" -eq 0 ] || exit 0

logs=$PWD/build/campaign
mkdir -p "$logs"
if [ -z "$build" ]; then
  build=$PWD/build/release
  echo "building $build"
  { cmake --preset release && cmake --build --preset release -j "$(nproc)"; } >"$logs/build.log" 2>&1 ||
    { tail -n 30 "$logs/build.log" >&2; exit 1; }
fi

failed=0 summary=()
for section in "${sections[@]}"; do
  echo "section $section (log: build/campaign/$section.log)"
  work=$(mktemp -d "$scratch/$section-XXXXXX")
  begin=$(date +%s) code=0
  BUILD=$build SCRATCH=$work TMPDIR=$work bash "tests/campaign/$section.sh" 2>&1 | tee "$logs/$section.log" || code=$?
  rm -rf "$work"
  case $code in
    0) verdict=passed ;;
    77) verdict="skipped: $(tail -n 1 "$logs/$section.log")" ;;
    *) verdict="FAILED ($code)" failed=$((failed + 1)) ;;
  esac
  summary+=("$(printf '%-12s %6d s  %s' "$section" $(($(date +%s) - begin)) "$verdict")")
done
echo
printf '%s\n' "${summary[@]}"
[ "$failed" -eq 0 ]
