#!/usr/bin/env bash
# Estimates against published figures: writes benches/estimates/table.md. Installs Triton below
# target/. Arguments are rows of published.json: those are printed, and no file is written.
set -euo pipefail
cd "$(dirname "$0")/.."

# The release of the time that the figures are of; it has wheels for Python up to 3.12.
venv=target/triton-3.0
[[ -x $venv/bin/python ]] || "${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check triton==3.0.0 numpy==2.2.6 setuptools
"$venv/bin/python" benches/estimates/triton_kernels.py benches/estimates/published.json \
    target/estimates
# The estimator and the simulator are optimised in the profile of development, too.
"${CARGO:-cargo}" bench --quiet --profile dev --bench estimates -- target/estimates "$@"
