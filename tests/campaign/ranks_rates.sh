#!/usr/bin/env bash
# What the ranks of a node share, and how fairly: bus, memory, drive, one rank beside two (4 minutes; on two GPUs, else on the CPU)
#
# DEVICE=cuda (default where there are two GPUs) or cpu; PARAMS in all (1600M, CPU 200M); PYTHON with torch for the buses.
# With the state in the tier two ranks must keep 0.9 of one rank's rate each, or 0.95 of what the buses carry at once; with
# the state on the drive they must reach 0.95 of its ceiling together, and none may be a tenth later than the mean.
set -uo pipefail

millpond=$BUILD/bin/millpond
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
device=${DEVICE:-$([ "$gpus" -ge 2 ] && echo cuda || echo cpu)}
one=$device params=${PARAMS:-200000000} steps=${STEPS:-5}
[ "$device" = cpu ] || { one=cuda:0 params=${PARAMS:-1600000000}; }
state=$((params * 12))
out=${OUT:-$SCRATCH}
python=${PYTHON:-python3}
mkdir -p "$SCRATCH/live"
say() { echo; echo "== [$SECONDS s] $*"; }
bench() { # NAME ...
  timeout "${LIMIT:-150}" "$millpond" bench --plugin "$BUILD/lib/libmillpond.so" --scratch "$SCRATCH/live" --quiet --serial-steps 0 \
    --steps "$steps" --params "$params" --json "$out/$1.json" "${@:2}" || echo "FAILED: $1 ($?)"
}

say "this machine"
lscpu | grep -E '^(Model name|CPU\(s\)|Socket|NUMA)'
echo "memory nodes online: $(cat /sys/devices/system/node/online 2>/dev/null)"
numactl -H 2>/dev/null | head -n 12
free -g | head -n 2
if [ "$device" = cuda ]; then
  nvidia-smi topo -m | sed 's/\x1b\[[0-9;]*m//g' | head -n 8
  for gpu in $(nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader | tr '[:upper:]' '[:lower:]' | sed 's/^0000//'); do
    echo "$gpu: NUMA node $(cat "/sys/bus/pci/devices/$gpu/numa_node" 2>/dev/null), link $(cat "/sys/bus/pci/devices/$gpu/current_link_speed" 2>/dev/null) x$(cat "/sys/bus/pci/devices/$gpu/current_link_width" 2>/dev/null)"
  done
  say "buses alone and at once"
  timeout 90 "$python" "$(dirname "$0")/bus_of_ranks.py" --gib "${GIB:-8}" 2>&1 | tee "$out/buses"
fi

say "state in the tier, one rank"
bench tier1 --device "$one" --ceiling-bytes 512MiB --tier $((state + (state >> 3)))
say "state in the tier, two ranks"
bench tier2 --device "$device" --ranks 2 --ceiling-bytes 512MiB --tier $(((state + (state >> 3)) / 2))
say "state on the drive, two ranks, a quarter of it in tiers"
params=$((params / 2)) bench drive2 --device "$device" --ranks 2 --tier $((state >> 4))
say "auto tiers of two ranks that do not fit: on the CPU, in a control group of 2 GiB"
group=/sys/fs/cgroup/memory/millpond-ranks-$$
if mkdir "$group" 2>/dev/null && echo $((2 << 30)) >"$group/memory.limit_in_bytes"; then
  (echo "$BASHPID" >"$group/cgroup.procs" &&
    steps=2 params=120000000 bench auto2 --ranks 2 --gradients bf16 --warmup 1 --ceiling-bytes 128MiB)
  rmdir "$group"
else
  echo "no control group (v1) with a memory limit can be made here"
fi

say "verdicts"
"$python" - "$out" <<'EOF'
import json, statistics, sys
out, missed = sys.argv[1], 0
def load(name):
    try:
        return json.load(open(f"{out}/{name}.json"))
    except (OSError, ValueError):
        return None
def say(what, holds):
    global missed
    missed |= not holds
    print(("holds   " if holds else "MISSES  ") + what)
one, two, drive, auto = (load(name) for name in ("tier1", "tier2", "drive2", "auto2"))
if one and two:
    single, node = statistics.median(one["settled_s"]), statistics.median(two["settled_s"])
    each = single / 2 / node
    carried = two.get("bus_efficiency")
    print(f"one rank {single * 1e3:.1f} ms, two {node * 1e3:.1f} ms a step")
    if carried is not None:
        print("buses, GB/s both ways: alone", [round(r / 1e9, 1) for r in two["bus_alone_bytes_per_s"]],
              "at once", [round(r / 1e9, 1) for r in two["bus_at_once_bytes_per_s"]])
    if carried is None:
        print("on the CPU ranks share the processors of one: no verdict")
    say(f"each of two ranks has {each:.3f} of one rank's rate"
        + ("" if carried is None else f", {carried:.3f} of its bus beside the other's"),
        carried is None or each >= 0.9 or carried >= 0.95)
if drive:
    say(f"two ranks on the drive: {drive['drive_efficiency']:.3f} of its ceiling "
        f"({[round(e, 3) for e in drive['drive_efficiency_list']]})", drive["drive_efficiency"] >= 0.95)
    say(f"none is late: {[round(late, 3) for late in drive['lateness']]}", max(drive["lateness"]) <= 0.1)
if auto:
    tiers = [rank["tier_bytes"] for rank in auto["by_rank"]]
    say(f"auto tiers {tiers}", max(tiers) <= 1.05 * min(tiers))
say("every run ended well", None not in (one, two, drive))
sys.exit(missed)
EOF
