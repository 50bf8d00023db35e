#!/usr/bin/env bash
# The tests of millpond.torch on a machine with a CUDA device.
#
#   bash tests/torch/gpu.sh PLUGIN [further Python path]    PLUGIN: a libmillpond.so built with CUDA
set -euo pipefail
cd "$(dirname "$0")"
plugin=${1:?"usage: bash tests/torch/gpu.sh PLUGIN [PYTHONPATH], PLUGIN a libmillpond.so built with CUDA"}
MILLPOND_PLUGIN=$(realpath "$plugin")
PYTHONPATH=$(realpath ../../host_adapters/python)${2:+:$(realpath "$2")}
export MILLPOND_PLUGIN PYTHONPATH PYTHONDONTWRITEBYTECODE=1
exec "${PYTHON:-python3}" -m pytest -q -rs -s -p no:cacheprovider test_cuda.py
