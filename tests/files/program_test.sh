#!/usr/bin/env bash
# The commands of `millpond` on checkpoint directories, end to end.
#   program_test.sh <millpond> <libmillpond.so> <reference directory>
set -euo pipefail
millpond=$1 plugin=$2 reference=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
run() { "$millpond" "$@" --plugin "$plugin" --quiet; }
fail() { echo "program_test.sh: $*" >&2; exit 1; }
# code WANTED COMMAND...
code() {
  local wanted=$1 got=0
  shift
  "$@" >"$work/out" 2>"$work/error" || got=$?
  [ "$got" -eq "$wanted" ] || fail "exit code $got instead of $wanted: $* ($(cat "$work/error"))"
}

code 0 run import "$reference/nvme_opt_state" --layout "$reference/layout.json" --to "$work/ours"
code 0 run inspect "$work/ours" --json "$work/inspect.json"
grep -q "rank00001/opt0_0" "$work/out" || fail "inspect names no store"
grep -q "embed.weight" "$work/out" || fail "inspect names no parameter"
grep -q '"world_size": 2' "$work/inspect.json" || fail "--json does not have the answer"
code 0 run verify "$work/ours"
grep -q "all as written" "$work/out" || fail "verify says nothing"
code 0 run reshard "$work/ours" --to "$work/three" --world-size 3
code 0 run diff "$work/ours" "$work/three"
grep -q "^the same" "$work/out" || fail "a resharded checkpoint differs: $(cat "$work/out")"
code 0 run export "$work/three" --layout "$reference/layout.json" --to "$work/theirs"
diff -r "$reference/nvme_opt_state" "$work/theirs" || fail "the export differs"

# A bit in the last file.
file=$(find "$work/three" -name 'bucket*.bin' -size +0 | sort | tail -n 1)
printf '\x55' | dd of="$file" bs=1 seek=1 conv=notrunc status=none
code 1 run verify "$work/three"
grep -q "$(basename "$file")" "$work/error" || fail "verify does not name the file: $(cat "$work/error")"
grep -q "offset" "$work/error" || fail "verify does not name the offset"

# Another value, with sums that fit it: the reference's file itself.
cp -r "$reference/nvme_opt_state" "$work/changed"
chmod -R u+w "$work/changed"
printf '\x01' | dd of="$work/changed/rank00001/opt0_0/bucket00001.bin" bs=1 seek=8 conv=notrunc status=none
code 0 run import "$work/changed" --layout "$reference/layout.json" --to "$work/other"
code 4 run diff "$work/ours" "$work/other"
grep -q "first at 2" "$work/out" || fail "diff does not find the element: $(cat "$work/out")"

code 1 run inspect "$work/nothing"
code 2 run reshard "$work/ours" --to "$work/x" --world-size 0
code 2 run inspect

# Every command: the answer as JSON in a file and on the standard output, and help with an example that names it.
mkdir "$work/json"
# json COMMAND KEY ARGUMENTS...
json() {
  local command=$1 key=$2 wanted=0
  shift 2
  [ "$command $key" != 'diff first' ] || wanted=4
  code "$wanted" run "$command" "$@" --json "$work/json/$command"
  local table=$work/json/$command.table
  cp "$work/out" "$table"
  grep -q "\"$key\": " "$work/json/$command" || fail "$command --json has no $key: $(cat "$work/json/$command")"
  [ -s "$table" ] && ! grep -q "\"$key\": " "$table" || fail "$command prints no table beside --json FILE"
  code 0 "$millpond" "$command" --help
  grep -A 9 'Examples:' "$work/out" | grep -q "millpond $command .*--json" || fail "$command --help shows no --json"
}
json inspect world_size "$work/ours"
json verify blocks "$work/ours"
json reshard stores "$work/ours" --to "$work/two" --world-size 2
json import stores "$reference/nvme_opt_state" --layout "$reference/layout.json" --to "$work/again"
json export stores "$work/again" --layout "$reference/layout.json" --to "$work/back"
json diff equal "$work/ours" "$work/two"
json diff first "$work/ours" "$work/other"
code 0 run verify "$work/ours" --json -
head -c 1 "$work/out" | grep -q '{' || fail "--json - prints something else first"
echo "all commands do what they say"
