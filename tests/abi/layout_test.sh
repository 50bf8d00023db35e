#!/bin/sh
# layout_test.sh COMPILER LANGUAGE STANDARD ROOT WORK: the golden layout as this compiler sees the headers.
# Also with -Wpadded as an error: no struct has implicit padding.
compiler=$1 language=$2 standard=$3 root=$4 work=$5
case $compiler in
  *NOTFOUND) echo "skipped: there is no such compiler here (${compiler%-NOTFOUND})"; exit 77 ;;
esac
mkdir -p "$work" || exit 1
"$compiler" -x "$language" -std="$standard" -Wall -Wextra -Wpedantic -Wpadded -Werror -I "$root/abi/include" \
  "$root/abi/layout/print.c" -o "$work/print" || exit 1
"$work/print" > "$work/layout.txt" || exit 1
if ! diff -u "$root/abi/layout.golden" "$work/layout.txt"; then
  echo "The headers and abi/layout.golden differ. abi/README.md says what a change needs." >&2
  exit 1
fi
