#!/usr/bin/env bash
# Runs the tests and the comparisons on a GPU, or one part of them.
set -euo pipefail
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)

usage() {
    cat <<'END'
Usage: benches/gpu/run.sh [PART [OPTION]...]

Runs the tests and the comparisons on a GPU. Results land in $OUT (default ./out), as they come.
Options go to the part: --limit S begins nothing after S seconds, --resume goes on with the results
that are there, --help lists the others.

Parts, each of which fits into a call of 10 minutes with --limit 480 (and --resume in the next, if
the exit status is 3, or 1 of check):
  check                                                   the tests
  pointwise                                               the demo chain
  fusion, or fusion-product, fusion-compile, fusion-copy  fused graphs
  rnn, or rnn-persistent, rnn-others, rnn-stacked, rnn-training
                                                          recurrent networks
  attention, or attention-64, attention-128, attention-256, attention-decode
                                                          attention by head size
  gradients                                               gradients of attention
  convolution, or convolution-forward, convolution-data, convolution-filter
                                                          convolutions and their gradients
  all                                                     the tests, then every comparison (default)
END
}

OUT=${OUT:-out}
export OUT
part=${1:-all}
[ $# -eq 0 ] || shift
case $part in
-h | --help)
    usage
    exit 0
    ;;
esac
command -v python3 >/dev/null || { echo "missing: python3" >&2; exit 1; }

# One part; the other arguments go to it.
run() {
    local part=$1
    shift
    case $part in
    check) "$here/check.sh" "$@" ;;
    pointwise | fusion | rnn | attention | gradients | convolution) python3 "$here/$part.py" "$@" ;;
    fusion-product | fusion-compile | fusion-copy | rnn-persistent | rnn-others | rnn-stacked | \
        rnn-training | convolution-forward | convolution-data | convolution-filter)
        python3 "$here/${part%-*}.py" --group "${part#*-}" "$@"
        ;;
    attention-64 | attention-128 | attention-256)
        python3 "$here/attention.py" --group prefill --depth "${part#*-}" "$@"
        ;;
    attention-decode) python3 "$here/attention.py" --group decode "$@" ;;
    *)
        echo "unknown part \`$part\`: --help lists them" >&2
        return 2
        ;;
    esac
}

if [ "$part" = all ]; then
    status=0
    # First whether it is right.
    for part in check pointwise fusion rnn attention gradients convolution; do
        run "$part" || status=1
    done
    exit $status
fi
run "$part" "$@"
