#!/bin/sh
# refusal_test.sh HOST PLUGIN WHAT TEXT...: a host that insists on sending WHAT of minor 1.1 (tail, option, feature, or
# key=KEY=JSON for an option from the command line) is refused, and told so in words that contain every TEXT.
set -u
host=$1 plugin=$2 what=$3
shift 3
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
mkdir "$directory/scratch"
awk 'BEGIN { for (i = 0; i < 4000; ++i) printf "line %d of the text, and %d more.\n", i, (i * 7919) % 1009 }' \
  > "$directory/text"
option=
case $what in
  key=*) option=${what#key=} ;;
esac
MILLPOND_SKEW_SEND=$what "$host" --quiet --text "$directory/text" --scratch "$directory/scratch" --plugin "$plugin" \
  --hidden 64 --embedding 16 --context 4 --batch 32 --steps 3 ${option:+--option "$option"} > "$directory/out" 2>&1
code=$?
cat "$directory/out"
[ "$code" -eq 1 ] || [ "$code" -eq 2 ] || { echo "exit code $code, wanted 1, or 2 for an option: it was not refused" >&2; exit 1; }
for text in "$@"; do
  grep -qF "$text" "$directory/out" || { echo "the refusal does not say: $text" >&2; exit 1; }
done
