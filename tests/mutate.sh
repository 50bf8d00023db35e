#!/usr/bin/env bash
# Takes away, one at a time, what keeps state safe (tests/mutations/*.patch) and demands that a test goes red.
#
#   bash tests/mutate.sh                 all mutations
#   bash tests/mutate.sh no_poison ...   these only
#   bash tests/mutate.sh --list          names and what they take away
#   bash tests/mutate.sh --jobs 2        processes of the build and the tests (default: all processors)
#
# Works on a copy of the tree under build/mutate; what it builds there is used again, with ccache where it is. Builds only
# what the mutations name, and a mutation's tests end with the first that fails. About 20 seconds a mutation on two cores,
# and four minutes before the first.
# Exit code: 0 when every mutation was found; 1 when one survived, does not compile or no longer applies.
#
# A patch begins with "What:", "Targets:" (of the build) and "Tests:" (a regular expression of ctest).
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=$(nproc) list=0 names=()
while [ $# -gt 0 ]; do
  case "$1" in
    --list) list=1 ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "tests/mutate.sh: unknown option '$1' (see --help)" >&2; exit 2 ;;
    *) names+=("$1") ;;
  esac
  shift
done
if [ ${#names[@]} -eq 0 ]; then
  for patch in tests/mutations/*.patch; do names+=("$(basename "$patch" .patch)"); done
fi
field() { sed -n "s/^$2: //p;/^---/q" "tests/mutations/$1.patch"; } # name, What | Targets | Tests
for name in "${names[@]}"; do
  [ -f "tests/mutations/$name.patch" ] || { echo "tests/mutate.sh: no mutation '$name' (see --list)" >&2; exit 2; }
  [ "$list" -eq 0 ] || printf '%-30s %s\n' "$name" "$(field "$name" What)"
done
[ "$list" -eq 0 ] || exit 0

here=$PWD/build/mutate
tree=$here/tree
mkdir -p "$tree"
# Files that did not change keep their times, so that the build begins where the last one ended.
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
  [ -f "$file" ] || continue
  cmp -s "$file" "$tree/$file" || { mkdir -p "$tree/$(dirname "$file")" && cp -p "$file" "$tree/$file" && touch "$tree/$file"; }
done
launchers=()
if command -v ccache >/dev/null; then
  # Paths below the copy are the same, relative to the build, as those of the tree's own builds: its objects serve here.
  export CCACHE_BASEDIR=$tree
  launchers=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
cmake -S "$tree" -B "$tree/build/release" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMILLPOND_CUDA=OFF "${launchers[@]}" \
  >"$here/configure.log"

build() { # log, targets...
  local log=$1
  shift
  cmake --build "$tree/build/release" -j "$jobs" --target "$@" >"$log" 2>&1
}
run() { # log, regular expression, further ctest arguments
  local log=$1 tests=$2
  shift 2
  ctest --test-dir "$tree/build/release" --output-on-failure --no-tests=error --timeout 120 -j "$jobs" -R "$tests" "$@" \
    >"$log" 2>&1
}

targets=() tests=()
for name in "${names[@]}"; do
  read -ra some <<<"$(field "$name" Targets)"
  targets+=("${some[@]}")
  tests+=("$(field "$name" Tests)")
done
echo "building and testing without a mutation"
build "$here/clean.log" "${targets[@]}" || { tail -n 30 "$here/clean.log" >&2; exit 1; }
if ! run "$here/clean.log" "$(IFS='|'; echo "${tests[*]}")"; then
  tail -n 30 "$here/clean.log" >&2
  echo "tests/mutate.sh: tests fail without any mutation" >&2
  exit 1
fi

wrong=0
printf '%-30s %-16s %s\n' mutation verdict "first test that saw it"
for name in "${names[@]}"; do
  patch=$PWD/tests/mutations/$name.patch log=$here/$name.log verdict='' seen=''
  if ! patch -s -p1 -d "$tree" --no-backup-if-mismatch --dry-run <"$patch" >"$log" 2>&1; then
    verdict='does not apply'
  else
    patch -s -p1 -d "$tree" --no-backup-if-mismatch <"$patch" >"$log" 2>&1
    read -ra some <<<"$(field "$name" Targets)"
    if ! build "$log" "${some[@]}"; then
      verdict='does not compile'
    elif run "$log" "$(field "$name" Tests)" --stop-on-failure; then
      verdict=SURVIVED
    else
      seen=$(sed -n 's/^[[:space:]]*[0-9]* - \(.*\) (.*)$/\1/p' "$log" | head -n 1)
      if [ -n "$seen" ]; then verdict=found; else verdict='no test ran'; fi
    fi
    patch -s -R -p1 -d "$tree" --no-backup-if-mismatch <"$patch"
  fi
  [ "$verdict" = found ] || wrong=$((wrong + 1))
  printf '%-30s %-16s %s\n' "$name" "$verdict" "$seen"
done
echo "${#names[@]} mutations, $wrong not found (logs in build/mutate/)"
[ "$wrong" -eq 0 ]
