#!/bin/bash
# Runs programs of others on the simulated GPU, unmodified: small ones in sim/driver/clients, or the
# tests of numba-cuda. Needs the network once, for a Python environment with pinned packages.
#
#   scripts/sim-clients.sh                    the programs in sim/driver/clients
#   scripts/sim-clients.sh tests [MODULE..]   the tests of numba-cuda, or those of some modules
set -euo pipefail
cd "$(dirname "$0")/.."
clients=sim/driver/clients
folder=${SIM_CLIENTS:-$PWD/target/sim-clients}
python=${PYTHON:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "sim-clients: skipped: $python is not Python 3.11 or later" >&2
    exit 0
fi
if ! cmp -s $clients/requirements.txt "$folder/requirements.txt"; then
    "$python" -m venv "$folder"
    if ! "$folder/bin/pip" install --quiet --requirement $clients/requirements.txt; then
        echo "sim-clients: skipped: the packages of $clients/requirements.txt did not install" >&2
        exit 0
    fi
    cp $clients/requirements.txt "$folder/requirements.txt"
fi
cargo build --quiet -p kiln-sim -p kiln-sim-driver
exec_on_gpu=(target/debug/kiln-sim exec)

if [ "${1:-}" = tests ]; then
    shift
    exec "${exec_on_gpu[@]}" --checks "${CHECKS:-none}" --gpu "${GPU:-sim}" -- \
        "$folder/bin/python" -W ignore $clients/numba_tests.py $clients/numba_expected.txt \
        "$folder/numba_tests.tsv" "$@"
fi
for gpu in sm_75 sm_80 sm_89 sm_90 sm_100 sm_120; do
    for program in $clients/numba_kernels.py $clients/core_program.py $clients/driver_api.py; do
        "${exec_on_gpu[@]}" --strict --gpu $gpu -- "$folder/bin/python" -W ignore $program
    done
done
echo "sim-clients: all programs ran"
