#!/usr/bin/env bash
# Trainings killed and stopped at random moments, saves included, end with the bytes of an undisturbed one (10 minutes)
#
# ROUNDS (default 60) kills; SEED (default: the time) of the moments.
set -euo pipefail

rounds=${ROUNDS:-60}
seed=${SEED:-$(date +%s)}
RANDOM=$seed
echo "SEED=$seed"
sample=$BUILD/bin/millpond-sample
text=$SCRATCH/text
cat ./*.md plugin/*/*.cc >"$text"
mkdir "$SCRATCH/live" "$SCRATCH/saves"
train=("$sample" --text "$text" --scratch "$SCRATCH/live" --plugin "$BUILD/lib/libmillpond.so" --quiet
  --hidden 512 --batch 32 --host-memory 4MiB --tile-elements 8192 --steps 300 --evaluations 1 --evaluation-bytes 512)
digest() { sed -n 's/.*XXH3-128 \([0-9a-f]*\).*/\1/p' "$1"; }

"${train[@]}" >"$SCRATCH/undisturbed"
want=$(digest "$SCRATCH/undisturbed")
[ -n "$want" ] || { cat "$SCRATCH/undisturbed"; exit 1; }

killed=0 stopped=0 restarts=0
while :; do
  resume=()
  if compgen -G "$SCRATCH/saves/step_*/optimizer/*/COMMIT.json" >/dev/null; then
    resume=(--resume "$SCRATCH/saves")
  fi
  "${train[@]}" --save "$SCRATCH/saves" --save-every 5 "${resume[@]}" >"$SCRATCH/log" 2>&1 &
  pid=$!
  if [ "$killed" -lt "$rounds" ]; then
    sleep "$((RANDOM % 3)).$((RANDOM % 10))$((RANDOM % 10))"
    if [ $((RANDOM % 3)) -eq 0 ] && kill -STOP "$pid" 2>/dev/null; then
      stopped=$((stopped + 1))
      sleep 0.3
      kill -CONT "$pid" 2>/dev/null || true
      sleep "0.$((RANDOM % 10))"
    fi
    if kill -KILL "$pid" 2>/dev/null; then killed=$((killed + 1)); fi
  fi
  code=0
  { wait "$pid" || code=$?; } 2>/dev/null
  restarts=$((restarts + 1))
  if [ "$code" -eq 0 ]; then
    got=$(digest "$SCRATCH/log")
    [ "$got" = "$want" ] || { echo "the digest is $got instead of $want"; cat "$SCRATCH/log"; exit 1; }
    [ "$killed" -lt "$rounds" ] || break
    rm -rf "$SCRATCH/saves" && mkdir "$SCRATCH/saves"
  elif [ "$code" -ne 137 ]; then
    echo "ended with $code"
    cat "$SCRATCH/log"
    exit 1
  fi
done
left=$(find "$SCRATCH/live" -mindepth 1 | wc -l)
[ "$left" -eq 0 ] || { echo "scratch files are left over"; find "$SCRATCH/live"; exit 1; }
echo "$killed kills and $stopped stops in $restarts runs: the same bytes, nothing left over"
