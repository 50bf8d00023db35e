#!/usr/bin/env bash
# What a step must reach on this machine: one line a figure, with what was wanted and what was got (20 minutes, 30 GB of space)
#
# Environment beside BUILD and SCRATCH: SCALE divides all sizes (default 1: 1 B parameters; others only try the script);
# PYTHON has torch (else the torch line is left out); REFERENCE_S, REFERENCE_10GIB_S: seconds of the Python store's step
# with 600 M parameters, with memory to spare and in a group of 10 GiB. Quiet machines only: every ratio is measured side by side, but two processors
# that are busy with something else starve a step more than a ceiling.
set -euo pipefail
command -v fio >/dev/null || { echo "fio is not installed (Debian package fio)"; exit 77; }
program=$BUILD/bin/millpond
plugin=$BUILD/lib/libmillpond.so
SCALE=${SCALE:-1}
results=$SCRATCH/figures
mkdir -p "$results" "$SCRATCH/scratch"

count() { echo $(($1 / SCALE)); } # of parameters or bytes
# bench NAME ARGUMENTS...: a run whose figures go to NAME.json; its table to the log.
bench() {
  local name=$1
  shift
  echo "--- $name: $*"
  "${prefix[@]}" "$program" bench --plugin "$plugin" --scratch "$SCRATCH/scratch" --json "$results/$name.json" --quiet \
    --ceiling-bytes "$(count $((4 << 30)))" "$@"
}
prefix=()
# in_group BYTES COMMAND...: with a memory limit, page cache included (control groups v1).
in_group() {
  # Measurements take 0.7 GB that only a small run has not left over.
  local group=/sys/fs/cgroup/memory/millpond-campaign-$$ limit=$(($1 + (SCALE > 1 ? 700 << 20 : 0)))
  shift
  if ! mkdir "$group" 2>/dev/null; then echo "no control group (v1) with a memory limit can be made here" && return 0; fi
  echo "$limit" >"$group/memory.limit_in_bytes"
  # shellcheck disable=SC2016
  prefix=(bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group")
  local code=0
  "$@" || code=$?
  prefix=()
  for _ in 1 2 3 4 5; do rmdir "$group" 2>/dev/null && break || sleep 1; done
  return $code
}

million=1000000
gib=$((1 << 30))
billion=$(count $((1000 * million)))
declare -A moments_bytes=([fp32]=8 [bf16]=4) # of a parameter

# The drive, as fio and as the plugin see it, in pairs. Memory in huge pages, as the plugin's is: with small ones a transfer
# falls into many more segments, and fio reached two thirds of the rate here.
huge_pages=/proc/sys/vm/nr_hugepages huge_before=$(cat /proc/sys/vm/nr_hugepages) fio_memory=malloc
if (echo $((huge_before + 80)) >$huge_pages) 2>/dev/null; then
  trap 'echo "$huge_before" >"$huge_pages"' EXIT
  [ "$(cat $huge_pages)" -ge 80 ] && fio_memory=mmaphuge
fi
echo "fio's memory: $fio_memory"
for pair in 1 2 3; do
  "$program" doctor "$SCRATCH/scratch" --plugin "$plugin" --quiet --drive-bytes "$(count $((4 * gib)))" \
    --json "$results/drive$pair.json" >/dev/null
  # Written once before, as the plugin's file is: fio lays a file out through the page cache.
  for direction in write rw; do
    fio --name=mixed --directory="$SCRATCH/scratch" --size="$(count $((4 * gib)))" --bs=4m --iodepth=32 \
      --ioengine=io_uring --iomem=$fio_memory --direct=1 --rw=$direction --rwmixread=50 --output-format=json \
      --output="$results/fio$pair.json" --fallocate=none
  done
  rm -f "$SCRATCH"/scratch/mixed.*
done
[ $fio_memory = malloc ] || echo "$huge_before" >"$huge_pages"
# Buffered, one after another: what the serial store's phases are held against.
for direction in write read; do
  fio --name=serial --directory="$SCRATCH/scratch" --size="$(count $((2 * gib)))" --bs=1m --ioengine=psync --direct=0 \
    --rw=$direction --output-format=json --output="$results/fio_$direction.json" --invalidate=1
done
rm -f "$SCRATCH"/scratch/serial.*

bench small_tier --params "$billion" --tier "$(count $gib)" --steps 7 --serial-steps 2
# Host: parameters and gradients, 6 bytes each; the serial store's bucket: 12 bytes for 200 M elements.
host=$((6 * billion + 12 * $(count $((200 * million)))))
in_group $((host + $(count $((8 * gib))) + (64 << 20))) \
  bench large_tier --params "$billion" --tier "$(count $((8 * gib)))" --steps 5 --serial-steps 3 \
  --bucket "$(count $((200 * million)))"
bench resident --params "$(count $((400 * million)))" --tier "$(count $((6 * gib)))" --steps 9 --serial-steps 0
# In turn: the drive drifts between runs by more than what is looked for.
for pair in 1 2 3; do
  for moments in fp32 bf16; do
    bench "moments_${moments}_$pair" --params "$(count $((400 * million)))" --moments $moments --steps 5 --serial-steps 0 \
      --tier "$(count $(((moments_bytes[$moments] + 4) * 40 * million)))"
  done
done
bench moments_bf16_resident --params "$(count $((400 * million)))" --moments bf16 --tier "$(count $((6 * gib)))" --steps 9 \
  --serial-steps 0
for millions in 50 200 1000 2000; do
  params=$(count $((millions * million)))
  bench "scale$millions" --params "$params" --gradients bf16 --tier $((params > 8 << 20 ? params : 8 << 20)) --steps 5 --serial-steps 0
done
bench reference --params "$(count $((600 * million)))" --tier "$(count $((8 * gib)))" --steps 5 --serial-steps 0
in_group "$(count $((10 * gib)))" \
  bench reference_10gib --params "$(count $((600 * million)))" --tier "$(count $((11 * gib / 2)))" --steps 5 --serial-steps 0

if [ -n "${PYTHON:-}" ] && "$PYTHON" -c 'import torch' 2>/dev/null; then
  MILLPOND_PLUGIN=$plugin PYTHONPATH=host_adapters/python "$PYTHON" tests/campaign/torch_update.py "$results/torch.json"
else
  echo "PYTHON does not name a Python with torch: no comparison with its fused AdamW"
fi
echo
REFERENCE_S=${REFERENCE_S:-10.2} REFERENCE_10GIB_S=${REFERENCE_10GIB_S:-14.2} python3 tests/campaign/judge_bench.py "$results"
