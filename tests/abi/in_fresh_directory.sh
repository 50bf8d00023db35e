#!/bin/sh
# in_fresh_directory.sh PROGRAM ARGUMENT: runs PROGRAM ARGUMENT DIRECTORY with an empty directory that goes afterwards.
directory=$(mktemp -d) || exit 1
trap 'rm -rf "$directory"' EXIT
"$1" "$2" "$directory"
