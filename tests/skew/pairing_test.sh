#!/bin/sh
# pairing_test.sh HOST PLUGIN MINOR WORK: a host trains through a plugin of another minor, in lock step with resident
# Adam, with a tier far smaller than the state; then once more, saving after every step, killed in the middle and
# resumed. The pair negotiates MINOR. The digest of the final parameters goes to WORK/digest, where that of every
# pairing must be the same.
set -eu
host=$1 plugin=$2 minor=$3 work=$4
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
mkdir "$directory/scratch"
mkdir -p "$work"
fail() { echo "$1" >&2; exit 1; }

awk 'BEGIN { for (i = 0; i < 4000; ++i) printf "line %d of the text, and %d more.\n", i, (i * 7919) % 1009 }' \
  > "$directory/text"
steps=60
set -- --quiet --text "$directory/text" --scratch "$directory/scratch" --plugin "$plugin" --hidden 64 --embedding 16 \
  --context 4 --batch 32 --warmup 4 --evaluations 1 --evaluation-bytes 4096 --tile-elements 4096 \
  --block-elements 4096 --host-memory 245760 --steps $steps
digest_of() { sed -n 's/.*"digest": *"\([^"]*\)".*/\1/p' "$1"; }

"$host" "$@" --compare --json "$directory/compare.json"
grep -q "ABI 1\.$minor," "$directory/compare.json" || fail "the pair did not negotiate 1.$minor"

mkfifo "$directory/progress"
"$host" "$@" --save "$directory/saves" --save-every 1 > "$directory/progress" 2>&1 &
pid=$!
while read -r line; do
  [ "$line" != "saved step 20" ] || kill -9 $pid
done < "$directory/progress"
wait $pid && fail "the run was not killed"

"$host" "$@" --resume "$directory/saves" --json "$directory/resumed.json" > "$directory/resumed" 2>&1 ||
  { cat "$directory/resumed"; fail "the resumed run failed"; }
from=$(sed -n 's/^resumed after step \([0-9]*\)$/\1/p' "$directory/resumed")
[ -n "$from" ] && [ "$from" -ge 20 ] && [ "$from" -lt $steps ] || { cat "$directory/resumed"; fail "resumed from '$from'"; }

whole=$(digest_of "$directory/compare.json")
[ -n "$whole" ] || fail "no digest in the result"
[ "$(digest_of "$directory/resumed.json")" = "$whole" ] || fail "the resumed run ends with other parameters"
# The first pairing writes it, the others compare.
if ! (set -C && echo "$whole" > "$work/digest") 2> /dev/null; then
  [ "$(cat "$work/digest")" = "$whole" ] || fail "this pairing ends with $whole, another with $(cat "$work/digest")"
fi
echo "ABI 1.$minor, resumed after step $from: $whole"
