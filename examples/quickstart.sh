#!/usr/bin/env bash
# From a fresh Debian 12 to a language model that trains on real text with its Adam state streamed through files.
# Installs what it needs, builds, then shows three things:
#   1. resident and streamed AdamW in lock step: every byte of parameters, mains and moments agrees
#   2. a run that is saved, killed with SIGKILL and resumed ends with the bytes of a run that was not
#   3. the model has learned more than a bigram model of the same text knows
#
#   bash examples/quickstart.sh [TEXT]   TEXT: a file of 1 MB or more; else the Debian package fortunes
#   bash examples/quickstart.sh --help
#
# The model trains on the CPU here, so the plugin is built without CUDA, whose kernels take longer to compile than all else;
# a build for GPUs is in README.md.
#
# Needs root or sudo for apt-get, unless the packages are there. Writes below build/quickstart/ only and can be run
# again: what is built stays, what it trains is trained anew. Exit code: 0 when all of it holds.
set -euo pipefail
given=${1:-}
case "$given" in
  -h | --help) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 0 ;;
  -*) echo "examples/quickstart.sh: unknown argument '$given' (see --help)" >&2; exit 2 ;;
  '' | /*) ;;
  *) given=$PWD/$given ;;
esac
cd "$(dirname "$0")/.."
source tests/packages.sh
TEXT_PACKAGES=(
  fortunes fortunes-min # about 2.5 MB of English to learn from; only their text files are read
)

steps=400 killed_after=200
build=build/quickstart run=build/quickstart/run
started=$(date +%s)
say() { printf '\n[%3d s] %s\n' $(($(date +%s) - started)) "$*"; }
fail() { printf '\nquickstart FAILED: %s\n' "$*" >&2; exit 1; }
# The value of a key at the top of a JSON file that millpond-sample wrote.
value() { sed -n "s/^  \"$2\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}$/\1/p" "$1"; }

# Whatever ends this script ends what it started.
# (the build has a process group of its own: ninja's compilers go with it).
build_job=
trap 'jobs=$(jobs -p); [ -z "$jobs" ] || kill $jobs 2>/dev/null; [ -z "$build_job" ] || kill -- "-$build_job" 2>/dev/null' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

long_enough() { # a text
  local bytes
  bytes=$(stat -L -c %s "$1")
  [ "$bytes" -ge 1000000 ] || fail "$1 has $bytes bytes; the text must have at least 1000000. Give a longer one, or none"
}
if [ -n "$given" ]; then
  [ -f "$given" ] && [ -r "$given" ] || fail "no such file, or it cannot be read: $given"
  long_enough "$given"
fi

mkdir -p "$build"
rm -rf "$run"
mkdir -p "$run/scratch"

say "1 of 6: Debian packages"
install_packages "${BUILD_PACKAGES[@]}"
[ -n "$given" ] || install_packages "${TEXT_PACKAGES[@]}"

say "2 of 6: release build (in $build, without the tests)"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMILLPOND_TESTS=OFF -DMILLPOND_CUDA=OFF \
  >"$build/configure.log" 2>&1 ||
  { tail -n 20 "$build/configure.log" >&2; fail "configuring; all of it is in $build/configure.log"; }
sed -n 's/^-- \(Millpond: .*\)/  \1/p' "$build/configure.log"
build_started=$(date +%s)
: >"$build/build.log"
set -m
cmake --build "$build" -j "$(nproc)" --target millpond millpond-sample >"$build/build.log" 2>&1 &
build_job=$!
set +m
last=$build_started
while kill -0 "$build_job" 2>/dev/null; do
  place=$(tail -n 1 "$build/build.log" | grep -o '^\[[0-9/]*\]' || true)
  if [ -t 1 ]; then
    printf '\r  %s ' "$place"
  elif [ $(($(date +%s) - last)) -ge 15 ]; then # a line now and then, for a log
    last=$(date +%s)
    printf '  %s after %d s\n' "$place" $((last - build_started))
  fi
  sleep 0.5
done
[ ! -t 1 ] || printf '\r'
code=0
wait "$build_job" || code=$?
build_job=
[ "$code" -eq 0 ] || { tail -n 40 "$build/build.log" >&2; fail "building; all of it is in $build/build.log"; }
build_seconds=$(($(date +%s) - build_started))
echo "  built in $build_seconds s"
sample=$PWD/$build/bin/millpond-sample
export MILLPOND_PLUGIN=$PWD/$build/lib/libmillpond.so
[ -f "$MILLPOND_PLUGIN" ] || fail "the build made no libmillpond.so"
echo "  libmillpond.so, $(stat -c %s "$MILLPOND_PLUGIN") bytes, opened with dlopen by millpond-sample"

say "3 of 6: text"
text=$given
if [ -z "$text" ]; then
  text=$run/text
  find /usr/share/games/fortunes -type f ! -name '*.dat' ! -name 'ascii-art' -print0 | LC_ALL=C sort -z |
    xargs -0 cat >"$text"
fi
long_enough "$text"
echo "  $text, $(stat -L -c %s "$text") bytes"

# Small tiles and 2 MiB of memory, so that the state does not fit and really moves through files.
train=("$sample" --text "$text" --steps "$steps" --scratch "$run/scratch" --tile 32768 --tier 2MiB)

say "4 of 6: $steps steps, resident and streamed in lock step"
"${train[@]}" --compare --json "$run/compare.json" || fail "resident and streamed training"
uninterrupted=$(value "$run/compare.json" digest)

say "5 of 6: the streamed run again, saved at step $killed_after, then killed with SIGKILL"
"${train[@]}" --save "$run/saves" --save-every "$killed_after" --quiet >"$run/killed.log" 2>&1 &
victim=$!
until grep -q "^saved step $killed_after\$" "$run/killed.log"; do
  kill -0 "$victim" 2>/dev/null || { cat "$run/killed.log" >&2; fail "the run ended before it was killed"; }
  sleep 0.05
done
kill -KILL "$victim"
ended=0
wait "$victim" 2>/dev/null || ended=$?
[ "$ended" -eq 137 ] || fail "the run ended with $ended before it could be killed"
echo "  killed; the newest save: $(find "$run/saves" -maxdepth 1 -name 'step_*' | sort | tail -n 1)"

say "6 of 6: resumed from the save"
"${train[@]}" --resume "$run/saves" --json "$run/resumed.json" >"$run/resumed.log" ||
  { cat "$run/resumed.log" >&2; fail "the resumed run"; }
[ "$(value "$run/resumed.json" first_step)" -eq $((killed_after + 1)) ] || fail "it did not go on after step $killed_after"
resumed=$(value "$run/resumed.json" digest)
echo "  uninterrupted  $uninterrupted"
echo "  resumed        $resumed"
[ -n "$resumed" ] && [ "$resumed" = "$uninterrupted" ] || fail "the final parameters differ"

model=$(value "$run/compare.json" bits_per_byte)
bigram=$(value "$run/compare.json" bigram_bits_per_byte)
awk -v model="$model" -v bigram="$bigram" 'BEGIN { exit !(model > 0 && model < bigram) }' ||
  fail "$model bits per byte; a bigram model has $bigram"
printf '\n[%3d s] All of it holds: same bytes resident and streamed, same bytes after kill and resume,\n' \
  $(($(date +%s) - started))
printf '        %.3f bits per byte where a bigram model has %.3f. What was trained is in %s.\n' "$model" "$bigram" "$run"
printf '        %d s in all, of them %d s the build.\n' $(($(date +%s) - started)) "$build_seconds"
