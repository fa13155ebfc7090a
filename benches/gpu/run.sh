#!/bin/sh
# Runs the tests and the comparisons on a GPU. Results land in $OUT (default ./out). The first argument
# may name one of them, check, pointwise, fusion, rnn or attention; the others go to it.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
OUT=${OUT:-out}
export OUT
if ! command -v python3 >/dev/null; then
    echo "missing: python3" >&2
    exit 1
fi
case ${1:-all} in
check)
    shift
    exec "$here/check.sh" "$@"
    ;;
pointwise | fusion | rnn | attention)
    which=$1
    shift
    exec python3 "$here/$which.py" "$@"
    ;;
all)
    status=0
    mkdir -p "$OUT"
    # First whether it is right: the log stands beside the figures.
    "$here/check.sh" >"$OUT/check.log" 2>&1 || status=1
    tail -n 3 "$OUT/check.log"
    for which in pointwise fusion rnn attention; do
        python3 "$here/$which.py" || status=1
    done
    exit $status
    ;;
*)
    echo "unknown comparison \`$1\`: expected check, pointwise, fusion, rnn or attention" >&2
    exit 2
    ;;
esac
