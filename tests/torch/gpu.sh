#!/usr/bin/env bash
# The tests of millpond.torch on a machine with a CUDA device.
#
#   bash tests/torch/gpu.sh PLUGIN [further Python path]   PLUGIN: a libmillpond.so built with CUDA
#   bash tests/torch/gpu.sh WHEEL.whl [further Python path]   the package as it is in a wheel, and its digest
set -euo pipefail
cd "$(dirname "$0")"
what=$(realpath "${1:?"usage: bash tests/torch/gpu.sh PLUGIN-OR-WHEEL [PYTHONPATH]"}")
python=${PYTHON:-python3}
case $what in
  *.whl)
    package=$(mktemp -d)
    trap 'rm -rf "$package"' EXIT
    sha256sum "$what"
    "$python" -m zipfile -e "$what" "$package"
    ;;
  *)
    package=$(realpath ../../host_adapters/python)
    export MILLPOND_PLUGIN=$what
    ;;
esac
export PYTHONPATH=$package${2:+:$(realpath "$2")} PYTHONDONTWRITEBYTECODE=1
failed=0
run() { "$python" -m pytest -q -rs -s -p no:cacheprovider "$@" || failed=1; }
run test_cuda.py test_nccl.py
# Two models are compared bit by bit: torch's own kernels must repeat themselves.
MILLPOND_TEST_DEVICE=cuda CUBLAS_WORKSPACE_CONFIG=:4096:8 run test_loop.py test_state_dicts.py
exit "$failed"
