#!/usr/bin/env bash
# Megatron: the release between, longer runs, other numbers of ranks, the example killed and resumed (20 minutes)
#
# Environment beside BUILD and SCRATCH: PYTHON has torch and pytest (default: build/venv/bin/python); MILLPOND_MEGATRON is a
# folder of megatron-core releases (default: build/megatron, missing ones are installed); MILLPOND_MEGATRON_LM is a
# Megatron-LM source tree, whose own training is tried too where it is named.
set -euo pipefail
python=${PYTHON:-$PWD/build/venv/bin/python}
[ -x "$python" ] || { echo "no Python with torch at $python: run tests/run.sh once, or set PYTHON"; exit 77; }
cores=${MILLPOND_MEGATRON:-$PWD/build/megatron}
for package in 0.10.0 0.13.1 0.15.3 0.16.1; do
  [ -d "$cores/$package" ] ||
    "$python" -m pip install -q --disable-pip-version-check --no-deps --target "$cores/$package" "megatron-core==$package"
done
export MILLPOND_MEGATRON=$cores MILLPOND_PLUGIN=$BUILD/lib/libmillpond.so PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=$PWD/host_adapters/python
cd tests/megatron
"$python" -m pytest -q -rs -p no:cacheprovider campaign_cores.py campaign_example.py
[ -z "${MILLPOND_MEGATRON_LM:-}" ] || "$python" -m pytest -q -rs -p no:cacheprovider test_tree.py
