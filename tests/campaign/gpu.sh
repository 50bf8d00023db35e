#!/usr/bin/env bash
# 1.6 B parameters on a GPU machine beside its own limits, alone and with little memory, 8 minutes
#
# Needs a CUDA device, torch, 28 GiB free in SCRATCH and BUILD from `cmake --preset cuda`. Writes one JSON a case into
# RESULTS (default: build/campaign/gpu). On a bare machine, with programs that were built elsewhere:
#   BUILD=dir SCRATCH=/mnt/nvme/x RESULTS=out bash tests/campaign/gpu.sh      dir/bin/millpond, dir/lib/libmillpond.so
# CASES: some of tier mapped bf16 drive drive_bf16 products. HOG=0: the drive's cases with all of the memory.
set -uo pipefail
nvidia-smi -L >/dev/null 2>&1 || { echo "no CUDA device here"; exit 77; }
results=${RESULTS:-$PWD/build/campaign/gpu}
mkdir -p "$results"
cases=${CASES:-tier mapped bf16 drive drive_bf16 products}
failed=0
# 24 matrices of 8192 x 8192, gradients as parameters.
params=$((24 * 8192 * 8192))
bench() {
  name=$1
  shift
  echo "== $name"
  "$BUILD/bin/millpond" bench --plugin "$BUILD/lib/libmillpond.so" --scratch "$SCRATCH" --device cuda:0 --params $params \
    --shard $((8192 * 8192)) --gradients bf16 --steps "${STEPS:-5}" --serial-steps 0 --ceiling-bytes 8GB --quiet --json "$results/$name.json" "$@" ||
    failed=1
}
has() { case " $cases " in *" $1 "*) ;; *) return 1 ;; esac; }

if has tier; then bench tier --tier 24GiB; fi
if has mapped; then bench mapped --tier 24GiB --option device_staging_bytes=0; fi
if has bf16; then bench bf16 --tier 24GiB --moments bf16; fi
if has drive || has drive_bf16; then
  hogs=()
  if [ "${HOG:-1}" = 1 ]; then
    # Other processes hold all but 13 GiB; they say so when they do.
    for i in 1 2 3 4 5 6 7 8; do
      python3 tests/campaign/hold_memory.py $((13 << 30)) "$SCRATCH/held.$i" &
      hogs+=($!)
    done
    for i in 1 2 3 4 5 6 7 8; do
      for _ in $(seq 600); do [ -e "$SCRATCH/held.$i" ] && break; sleep 0.2; done
    done
    grep -E 'MemTotal|MemAvailable' /proc/meminfo | tee "$results/held.txt"
  fi
  if has drive; then bench drive --tier 10GiB; fi
  if has drive_bf16; then bench drive_bf16 --tier 10GiB --moments bf16; fi
  [ ${#hogs[@]} -eq 0 ] || kill "${hogs[@]}"
  wait
fi
if has products; then
  PYTHONPATH=host_adapters/python python3 tests/python/bench_beside_products.py --plugin "$BUILD/lib/libmillpond.so" \
    --scratch "$SCRATCH" --out "$results/products.json" || failed=1
fi
exit $failed
