#!/usr/bin/env bash
# Trainings of three ranks killed and stopped 1,000 times at random, saves included, end with the bytes of an undisturbed one (30 minutes)
#
# ROUNDS (default 1000) kills, of one rank or of all; SEED (default: the time) of the moments. Whatever a kill leaves must
# resume: the save that was being written or the one before, whole. A mixture would change the digest at the end of a run.
set -euo pipefail

rounds=${ROUNDS:-1000}
seed=${SEED:-$(date +%s)}
RANDOM=$seed
echo "SEED=$seed"
sample=$BUILD/bin/millpond-sample
text=$SCRATCH/text
cat ./*.md plugin/*/*.cc >"$text"
mkdir "$SCRATCH/live" "$SCRATCH/saves"
train=("$sample" --text "$text" --scratch "$SCRATCH/live" --plugin "$BUILD/lib/libmillpond.so" --quiet --ranks 3
  --micro-batches 12 --threads 1 --hidden 128 --batch 48 --host-memory 4MiB --tile-elements 4096 --block-elements 4096
  --steps 60 --evaluations 1 --evaluation-bytes 512 --rank-timeout 20)
digest() { sed -n 's/.*XXH3-128 \([0-9a-f]*\).*/\1/p' "$1"; }
processes() { sed -n 's/.*rank [0-9]* is process \([0-9]*\).*/\1/p' "$SCRATCH/log"; }
# fail WORDS...: with the log of the last run.
fail() { echo "$*"; cat "$SCRATCH/log"; exit 1; }

"${train[@]}" >"$SCRATCH/log" 2>&1 || fail "the undisturbed run failed"
want=$(digest "$SCRATCH/log")
[ -n "$want" ] || fail "no digest"

kills=0 in_save=0 stopped=0 runs=0 finished=0 most_saves=0
begin=$(date +%s)
while :; do
  resume=()
  if compgen -G "$SCRATCH/saves/step_*/optimizer/*/COMMIT.json" >/dev/null; then
    resume=(--resume "$SCRATCH/saves")
  fi
  : >"$SCRATCH/log"
  "${train[@]}" --save "$SCRATCH/saves" --save-every 2 "${resume[@]}" >"$SCRATCH/log" 2>&1 &
  pid=$! victim=''
  if [ "$kills" -lt "$rounds" ]; then
    sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
    mapfile -t ranks < <(processes)
    # One rank in two of three cases, else the program that started them, with which all end.
    if [ $((RANDOM % 3)) -gt 0 ] && [ ${#ranks[@]} -eq 3 ]; then victim=${ranks[RANDOM % 3]}; else victim=$pid; fi
    if [ $((RANDOM % 10)) -eq 0 ] && kill -STOP "$victim" 2>/dev/null; then
      stopped=$((stopped + 1))
      sleep 0.2
      kill -CONT "$victim" 2>/dev/null || true
      sleep "0.0$((RANDOM % 10))"
    fi
    unfinished=$({ find "$SCRATCH/saves" -mindepth 3 -maxdepth 3 -type d '!' -exec test -e '{}/COMMIT.json' ';' -print \
      2>/dev/null || true; } | wc -l)
    if kill -KILL "$victim" 2>/dev/null; then
      kills=$((kills + 1))
      [ "$unfinished" -eq 0 ] || in_save=$((in_save + 1))
    else
      victim=''
    fi
  fi
  code=0
  { wait "$pid" || code=$?; } 2>/dev/null
  runs=$((runs + 1))
  # Ranks whose program was killed end by themselves; two runs at once is not what is tried here.
  for rank in $(processes); do
    for _ in $(seq 500); do
      kill -0 "$rank" 2>/dev/null || break
      ! grep -q '^State:[[:space:]]*Z' "/proc/$rank/status" 2>/dev/null || break
      sleep 0.02
    done
  done
  saves=$(find "$SCRATCH/saves" -mindepth 3 -maxdepth 3 -type d | wc -l)
  [ "$saves" -le "$most_saves" ] || most_saves=$saves
  if [ "$code" -eq 0 ]; then
    got=$(digest "$SCRATCH/log")
    [ "$got" = "$want" ] || fail "the digest is $got instead of $want"
    # Kills in a row leave more than one save or attempt; the next save that is not killed removes them.
    [ "$saves" -eq 1 ] || ! grep -q '^saved step' "$SCRATCH/log" || fail "$saves saves and leftovers of saves after a whole run"
    finished=$((finished + 1))
    [ "$kills" -lt "$rounds" ] || break
    rm -rf "$SCRATCH/saves" && mkdir "$SCRATCH/saves"
  elif [ -z "$victim" ] || { [ "$code" -ne 137 ] && ! grep -q 'was ended by signal 9' "$SCRATCH/log"; }; then
    fail "ended with $code, not by a kill"
  fi
  [ $((runs % 50)) -gt 0 ] || echo "$(($(date +%s) - begin)) s: $kills kills, $in_save of them in a save, $finished whole runs"
done
left=$(find "$SCRATCH/live" -mindepth 1 | wc -l)
[ "$left" -eq 0 ] || fail "scratch files are left over: $(find "$SCRATCH/live")"
echo "$kills kills ($in_save while a save was being written) and $stopped stops in $runs runs, $finished of them whole:" \
  "wanted $want each time, got it; at most $most_saves saves and leftovers beside each other, no scratch file left over"
