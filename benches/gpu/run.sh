#!/bin/sh
# Runs the GPU comparison; arguments go to pointwise.py. Results land in $OUT (default ./out).
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
OUT=${OUT:-out}
export OUT
if ! command -v python3 >/dev/null; then
    echo "missing: python3" >&2
    exit 1
fi
exec python3 "$here/pointwise.py" "$@"
