#!/usr/bin/env bash
# Builds what a machine with a GPU and without Rust needs, into out/gpu: the command line, the
# example that pointwise.py times, the tests, and where they were built. Copy the checkout there with
# out/gpu.
set -euo pipefail
case ${1:-} in
-h | --help)
    sed -n '2,/^set/{/^set/!s/^# //p}' "$0"
    exit 0
    ;;
esac
cd "$(dirname "$0")/../.."
kit=out/gpu
cargo build --release --bin kiln --example bench_pointwise
tests=$(scripts/test-binary.sh --features remote --test it)
mkdir -p "$kit"
target=${CARGO_TARGET_DIR:-$PWD/target}
strip -o "$kit/kiln" "$target/release/kiln"
strip -o "$kit/bench_pointwise" "$target/release/examples/bench_pointwise"
strip -o "$kit/it" "$tests"
printf '%s\n%s\n' "$PWD" "${tests%/deps/*}" >"$kit/built"
du -sh "$kit"
