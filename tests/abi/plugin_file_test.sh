#!/bin/sh
# plugin_file_test.sh LIBMILLPOND.SO CHECK SANITIZE: what the file promises to the process that opens it.
file=$1 check=$2 sanitize=$3
floor=2.35
fail() { echo "$check: $1" >&2; exit 1; }

if [ -n "$sanitize" ]; then
  echo "skipped: a build with $sanitize needs the sanitizer's libraries"
  exit 77
fi
command -v readelf > /dev/null || { echo "skipped: no readelf (binutils)"; exit 77; }
[ -f "$file" ] || fail "there is no $file"

case $check in
  needed)
    needed=$(readelf -dW "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort)
    for name in $needed; do
      case $name in
        libc.so.6 | libm.so.6 | ld-linux-x86-64.so.2 | ld-linux-aarch64.so.1) ;;
        *) fail "needs $name: link it statically" ;;
      esac
    done
    echo "$needed" | grep -qx libc.so.6 || fail "does not even need libc.so.6: was the right file read?"
    readelf -dW "$file" | grep -Eq '\((RPATH|RUNPATH)\)' && fail "has a search path of the building machine"
    exit 0 ;;
  exports)
    exports=$(readelf --dyn-syms -W "$file" | awk '$7 != "UND" && $8 != "" && $1 ~ /^[0-9]+:$/ {print $8}' | sort | tr '\n' ' ')
    [ "$exports" = "millpond_open_v1 millpond_plugin_identity " ] || fail "exports '$exports'" ;;
  nodelete)
    readelf -dW "$file" | grep '(FLAGS_1)' | grep -q NODELETE || fail "no NODELETE flag" ;;
  defined)
    # -z defs, seen from outside: relocating everything leaves nothing undefined.
    undefined=$(ldd -r "$file" 2>&1 | grep 'undefined symbol')
    [ -z "$undefined" ] || fail "$undefined" ;;
  glibc)
    newest=$(readelf -VW "$file" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -Vu | tail -1)
    [ -n "$newest" ] || fail "no versioned symbol of glibc was found"
    [ "$(printf '%s\n%s\n' "$newest" "$floor" | sort -V | tail -1)" = "$floor" ] ||
      fail "needs glibc $newest, the floor is $floor: $(readelf --dyn-syms -W "$file" | grep -o "[a-z_0-9]*@GLIBC_$newest" | tr '\n' ' ')" ;;
  hardened)
    readelf -lW "$file" | grep GNU_STACK | grep -q 'RWE' && fail "asks for an executable stack"
    readelf -dW "$file" | grep -q TEXTREL && fail "has text relocations"
    exit 0 ;;
  *) fail "unknown check" ;;
esac
