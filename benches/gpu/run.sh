#!/bin/sh
# Runs the GPU comparisons. Results land in $OUT (default ./out). The first argument may name one,
# pointwise, fusion, rnn or attention; the others go to it.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
OUT=${OUT:-out}
export OUT
if ! command -v python3 >/dev/null; then
    echo "missing: python3" >&2
    exit 1
fi
case ${1:-all} in
pointwise | fusion | rnn | attention)
    which=$1
    shift
    exec python3 "$here/$which.py" "$@"
    ;;
all)
    status=0
    for which in pointwise fusion rnn attention; do
        python3 "$here/$which.py" || status=1
    done
    exit $status
    ;;
*)
    echo "unknown comparison \`$1\`: expected pointwise, fusion, rnn or attention" >&2
    exit 2
    ;;
esac
