#!/usr/bin/env bash
# How long save_to keeps a training of SAVE_GB (12) waiting, linked and copied to another filesystem; verifying (10 minutes)
#
# Needs a quiet machine and four times SAVE_GB on the drive of SCRATCH. SAVE_ELSEWHERE: a directory on another filesystem
# for the copy; without one root makes an ext4 on a loop device there, others do not measure it.
set -euo pipefail
gigabytes=${SAVE_GB:-12}
test=$BUILD/tests/checkpoint/checkpoint_save_time_test
failed=0
part() { awk -v gb="$gigabytes" "BEGIN { print $1 }"; }

echo "== the state is larger than memory: steps are bound by the drive"
SAVE_GB=$gigabytes "$test" || failed=1
echo "== a tenth of it: the foreground does not depend on the size"
SAVE_GB=$(part 'gb / 10') SAVE_TIER_MB=$(part 'int(gb * 17)') "$test" || failed=1
echo "== a third of it, all in memory: steps are not bound by the drive"
SAVE_GB=$(part 'gb / 3') SAVE_TIER_MB=$(part 'int(gb * 340) + 100') "$test" || failed=1

if [ -z "${SAVE_ELSEWHERE:-}" ] && [ "$(id -u)" -eq 0 ]; then
  SAVE_ELSEWHERE=$SCRATCH/elsewhere
  mkdir "$SAVE_ELSEWHERE"
  # Reserved and without a page cache of its own: an image that grows while the copy is written back would hold up the
  # journal of the drive that it lies on, and with it the scratch files beside it.
  fallocate -l "$(part 'int(gb * 2.2) + 1')G" "$SCRATCH/image"
  mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$SCRATCH/image"
  if device=$(losetup --find --show --direct-io=on "$SCRATCH/image") && mount "$device" "$SAVE_ELSEWHERE"; then
    trap 'umount "$SAVE_ELSEWHERE"; losetup -d "$device"' EXIT
  else
    SAVE_ELSEWHERE=
  fi
fi
if [ -n "${SAVE_ELSEWHERE:-}" ]; then
  echo "== copied to another filesystem, $SAVE_ELSEWHERE"
  copy=$(mktemp -d -p "$SAVE_ELSEWHERE")
  SAVE_GB=$gigabytes SAVE_TO=$copy "$test" || failed=1
  echo "== verified, in turn with plain direct reads of the same bytes"
  file=$(find "$copy" -name 'bucket*.bin' -size +0)
  seconds() {
    dd of="$file" oflag=nocache conv=notrunc,fdatasync count=0 status=none # nothing of it is in the page cache
    local begin
    begin=$(date +%s.%N)
    "$@" >/dev/null || return
    awk -v begin="$begin" -v end="$(date +%s.%N)" 'BEGIN { print end - begin }'
  }
  for _ in 1 2 3; do
    plain=$(seconds dd if="$file" iflag=direct bs=8M status=none)
    ours=$(seconds "$BUILD/bin/millpond" verify "$copy/state" --plugin "$BUILD/lib/libmillpond.so" --quiet)
    awk -v plain="$plain" -v ours="$ours" -v bytes="$(stat -c %s "$file")" 'BEGIN {
      printf "%.2f GB/s, the drive alone %.2f GB/s: %.2f\n", bytes / ours / 1e9, bytes / plain / 1e9, plain / ours
    }'
  done | tee "$SCRATCH/verified"
  ratio=$(awk '{ print $NF }' "$SCRATCH/verified" | sort -n | sed -n 2p)
  echo "verify: wanted at least 0.80 of the drive's rate, got $ratio (median)"
  awk -v got="$ratio" 'BEGIN { exit got < 0.8 }' || failed=1
else
  echo "== not copied: SAVE_ELSEWHERE names no other filesystem, and root alone can make one on a loop device"
fi
exit "$failed"
