#!/bin/sh
# build_minor_1.sh SOURCE WORK CMAKE-ARGUMENT...: the tree as minor 1.1 would be, from a copy of SOURCE and
# minor_1.patch; builds its plugin and its sample host below WORK. Files that did not change keep their times, so that
# a second run builds little. A library is compiled as one source, which takes gcc less time.
set -eu
source=$1 work=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)

rm -rf "$work/next"
mkdir -p "$work/next" "$work/tree"
for part in CMakeLists.txt LICENSE README.md CHANGELOG.md abi cmake kernels checkpoint plugin host_adapters; do
  [ ! -e "$source/$part" ] || cp -R "$source/$part" "$work/next/"
done
if ! patch --directory "$work/next" --strip 1 --no-backup-if-mismatch --fuzz 2 < "$here/minor_1.patch"; then
  echo "tests/skew/minor_1.patch no longer fits the tree: tests/skew/README.md says how to renew it" >&2
  exit 1
fi
(cd "$work/tree" && find . -path ./build -prune -o -type f -print) | while IFS= read -r file; do
  [ -e "$work/next/$file" ] || rm "$work/tree/$file"
done
(cd "$work/next" && find . -type f) | while IFS= read -r file; do
  cmp -s "$work/next/$file" "$work/tree/$file" || {
    mkdir -p "$work/tree/$(dirname "$file")"
    cp "$work/next/$file" "$work/tree/$file"
  }
done
rm -rf "$work/next"

build=$work/tree/build/minor_1
cmake -S "$work/tree" -B "$build" -DMILLPOND_TESTS=OFF -DMILLPOND_CUDA=OFF -DCMAKE_UNITY_BUILD=ON \
  -DCMAKE_UNITY_BUILD_BATCH_SIZE=0 "$@"
cmake --build "$build" --parallel "$(nproc)" --target millpond millpond-sample
ln -sf "$(find "$build" -name libmillpond.so | head -1)" "$work/libmillpond.so"
ln -sf "$(find "$build" -name millpond-sample -type f | head -1)" "$work/millpond-sample"

# The text of the layout that the patch carries is the one that its headers have.
cc -std=c11 -I "$work/tree/abi/include" "$work/tree/abi/layout/print.c" -o "$work/print"
"$work/print" | diff - "$work/tree/abi/layout.golden"
