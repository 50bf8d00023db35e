#!/usr/bin/env bash
# One wheel file with torch 2.11.0, 2.7.1 and 2.6.0, each in an environment of its own (40 minutes, 6 GB of space at a time)
#
# TORCH_VERSIONS="2.7.1 2.6.0": these instead. TORCH_ENVS=DIR: environments are kept there and used again.
# WHEEL=FILE: this wheel, instead of one that is built here.
# FSDP2 on the CPU begins with torch 2.7: its tests say so where they are left out. accelerate and Lightning are installed
# beside torch: their own checkpoints are tried too.
set -euo pipefail
versions=${TORCH_VERSIONS:-2.11.0 2.7.1 2.6.0}
envs=${TORCH_ENVS:-$SCRATCH}
unset PYTHONPATH MILLPOND_PLUGIN
export PYTHONDONTWRITEBYTECODE=1

wheel=${WHEEL:-}
if [ -z "$wheel" ]; then
  echo "building the wheel"
  python3 -m venv "$SCRATCH/builder"
  "$SCRATCH/builder/bin/python" -m pip wheel -q --no-deps --config-settings="build-dir=$SCRATCH/build" -w "$SCRATCH/wheel" .
  wheel=$(echo "$SCRATCH"/wheel/*.whl)
fi
digest=$(sha256sum "$wheel")
echo "$digest"

failed=0
for version in $versions; do
  env=$envs/torch-$version
  if [ ! -x "$env/bin/python" ]; then
    python3 -m venv "$env"
    "$env/bin/python" -m pip install -q --no-cache-dir "torch==$version" numpy pytest accelerate pytorch-lightning
  fi
  "$env/bin/python" -m pip install -q --force-reinstall --no-cache-dir "$wheel"
  (cd "$SCRATCH" && "$env/bin/python" -c "
import millpond, sys, torch
assert millpond.__file__.startswith(sys.prefix), millpond.__file__
assert torch.__version__.startswith('$version'), torch.__version__
print('python', sys.version.split()[0], 'torch', torch.__version__, 'plugin', millpond.find_plugin())")
  MILLPOND_CAMPAIGN=1 MILLPOND_WHEEL=$wheel "$env/bin/python" -m pytest -q -rs -p no:cacheprovider \
    tests/torch tests/torch/campaign_trainers.py || failed=1
  [ "$(sha256sum "$wheel")" = "$digest" ] || { echo "the wheel has changed"; failed=1; }
  [ "$envs" != "$SCRATCH" ] || rm -rf "$env"
done
exit "$failed"
