#!/usr/bin/env bash
# Compiles kernels with Triton for GPUs of four generations, runs them on the simulator with all
# checks and compares the results with numpy. Installs Triton below target/. Arguments go to
# sim/tests/triton/run.py.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=target/triton
[[ -x $venv/bin/python ]] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check triton==3.9.0 numpy==2.4.6
"${CARGO:-cargo}" build --quiet -p kiln-sim
exec "$venv/bin/python" sim/tests/triton/run.py "$@"
