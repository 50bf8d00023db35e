#!/usr/bin/env bash
# Ranks of the sample with one digest at every number, resharded 4 to 2 to 4, one killed in step, save and load (2 minutes)
#
# DEVICE=cuda (default where there are two GPUs) or cpu. On two GPUs: one and two ranks over NCCL, four ranks two a GPU over
# shared memory. PERIOD (default 60): the most seconds in which the others of a killed rank must have ended.
set -uo pipefail

sample=$BUILD/bin/millpond-sample
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
device=${DEVICE:-$([ "$gpus" -ge 2 ] && echo cuda || echo cpu)}
nccl=shared
[ "$device" = cpu ] || nccl=nccl
text=$SCRATCH/text
if [ -f "${TEXT:-}" ]; then cp "$TEXT" "$text"; else cat ./*.md plugin/*/*.cc >"$text"; fi
mkdir -p "$SCRATCH/live"
log=$SCRATCH/log saves=$SCRATCH/saves missed=0
hidden=${HIDDEN:-512}
common=(--text "$text" --scratch "$SCRATCH/live" --plugin "$BUILD/lib/libmillpond.so" --quiet --device "$device" --hidden "$hidden"
  --micro-batches 4 --batch 128 --evaluations 1 --evaluation-bytes 2048 --rank-timeout 30 --host-memory "${TIER:-4MiB}"
  --tile-elements "${TILE:-65536}" --block-elements 65536)
# train RANKS COLLECTIVE ...: to $log.
train() { timeout 120 "$sample" "${common[@]}" --ranks "$1" --collective "$2" "${@:3}" >"$log" 2>&1; }
digest() { sed -n 's/.*XXH3-128 \([0-9a-f]*\).*/\1/p' "$log"; }
check() { # WORDS WANTED GOT
  if [ "$2" = "$3" ]; then echo "holds   $1"; else echo "MISSES  $1: wanted '$2', got '$3'"; cut -c1-300 "$log" | tail -n 12; missed=1; fi
}

# One digest.
train 1 "$nccl" --compare --steps 20 --compare-every 5 || cat "$log"
one=$(digest)
echo "$(grep -m1 -E 'cuda:|CPU|threads' "$log"): digest $one"
for how in "2 $nccl" "2 shared" "4 shared"; do
  read -r ranks collective <<<"$how"
  train "$ranks" "$collective" --compare --steps 20 --compare-every 5
  check "$ranks ranks over $collective: --compare, and the digest of one" "$one" "$(digest)"
done

# Saved by four, gone on with by two, then by four again.
train 4 shared --steps 24
want=$(digest)
train 4 shared --steps 24 --save "$saves" --stop-after 8
train 2 "$nccl" --steps 24 --save "$saves" --resume "$saves" --stop-after 16
check "two ranks resume what four saved" "resumed after step 8" "$(grep -o 'resumed after step [0-9]*' "$log")"
train 4 shared --steps 24 --resume "$saves"
check "four ranks resume what two saved" "resumed after step 16" "$(grep -o 'resumed after step [0-9]*' "$log")"
check "4 -> 2 -> 4 has the digest of 4" "$want" "$(digest)"
rm -rf "$saves"

# until WORDS: in the log, for a minute at most.
until_told() {
  for _ in $(seq 6000); do grep -q "$1" "$log" && return 0; sleep 0.01; done
  echo "MISSES  the run never said '$1'"; missed=1; return 1
}
# strike PHASE WORDS DELAY ...: kills rank 1 when the run has said WORDS and DELAY seconds have passed.
strike() {
  local phase=$1 words=$2 delay=$3 pid victim begin code=0
  shift 3
  : >"$log"
  timeout 180 "$sample" "${common[@]}" --ranks 2 --collective "$nccl" --steps 100000000 "$@" >"$log" 2>&1 &
  pid=$!
  until_told "$words" || { kill "$pid"; wait "$pid"; return; }
  sleep "$delay"
  victim=$(sed -n 's/^rank 1 is process //p' "$log")
  [ ! -d "$saves" ] || echo "        saves then: $(cd "$saves" && find . -mindepth 3 -maxdepth 3 | tr '\n' ' ')"
  begin=$(date +%s%N)
  kill -KILL "$victim"
  wait "$pid" || code=$?
  local ms=$((($(date +%s%N) - begin) / 1000000))
  check "killed in $phase: ended with 1" 1 "$code"
  check "killed in $phase: within ${PERIOD:-60} s (took $ms ms)" yes "$([ "$ms" -lt $((${PERIOD:-60} * 1000)) ] && echo yes)"
  check "killed in $phase: the other says who died" 1 "$(grep -c '^rank 0: millpond-sample: .*rank 1 was ended by signal 9' "$log")"
  grep '^rank 0: millpond-sample' "$log" | cut -c1-200
}
strike "a step" "rank 1 is process" "${WARM:-1}"
strike "a save" "saved step 6$" 0.0"$((RANDOM % 9))" --save "$saves" --save-every 1
train 2 "$nccl" --steps 60 --resume "$saves"
check "the save that loads after it is whole" 0 "$?"
after=$(digest) from=$(sed -n 's/resumed after step //p' "$log")
rm -rf "$saves"
echo "        (resumed after step $from)"
train 2 "$nccl" --steps 100000000 --save "$saves" --stop-after 6
strike "a load" "^loading " "${LOADING:-0}" --resume "$saves"
check "the kill came before the load was through" 0 "$(grep -c '^resumed' "$log")"
train 4 shared --steps 100000000 --resume "$saves" --stop-after 9
check "four ranks load the same save afterwards" 0 "$?"
check "as one of nine steps would" "$(d=$(digest); train 1 "$nccl" --steps 100000000 --stop-after 9; [ "$d" = "$(digest)" ] && echo same)" same
: "$after"
exit $missed
