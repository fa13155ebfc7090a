#!/usr/bin/env bash
# Fuzzes the PTX machine for FUZZ_SECONDS, from the PTX of its tests and what earlier runs found.
# Needs a nightly compiler and cargo-fuzz (`cargo install cargo-fuzz`); more arguments go to libFuzzer.
set -euo pipefail
cd "$(dirname "$0")/../sim/fuzz"

SECONDS_MAX=${FUZZ_SECONDS:-1800}

fail() { printf 'fuzz-sim: %s\n' "$*" >&2; exit 1; }
cargo fuzz --version >/dev/null 2>&1 || fail "cargo-fuzz not found: cargo install cargo-fuzz"
cargo +nightly --version >/dev/null 2>&1 || fail "no nightly compiler: rustup install nightly"

# A seed for each kernel: what precedes the first one and all device functions, then the kernel.
mkdir -p corpus/ptx
rm -f corpus/ptx/seed-*
shopt -s globstar
for file in ../tests/**/*.ptx; do
    name=${file#../tests/} name=${name%.ptx} name=${name//\//-}
    awk -v out="corpus/ptx/seed-$name" '
        /\.entry/ { entry++; inside = 1 }
        inside { kernels[entry] = kernels[entry] $0 "\n"; if (/^}/) inside = 0; next }
        { rest = rest $0 "\n" }
        END { for (k = 1; k <= entry; k++) printf "%s%s", rest, kernels[k] > (out "-" k) }
    ' "$file"
done

exec cargo +nightly fuzz run --sanitizer none ptx -- -dict=ptx.dict -max_len=65536 -timeout=20 \
    -rss_limit_mb=3000 -max_total_time="$SECONDS_MAX" -print_final_stats=1 "$@"
