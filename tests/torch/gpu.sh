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
run() { "${PYTHON:-python3}" -m pytest -q -rs -s -p no:cacheprovider "$@"; }
run test_cuda.py
# Two models are compared bit by bit: torch's own kernels must repeat themselves.
MILLPOND_TEST_DEVICE=cuda CUBLAS_WORKSPACE_CONFIG=:4096:8 run test_loop.py test_state_dicts.py
