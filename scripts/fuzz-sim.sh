#!/usr/bin/env bash
# Fuzzes the PTX machine for FUZZ_SECONDS, from the PTX of its tests and what earlier runs found.
# Needs a nightly compiler and cargo-fuzz (`cargo install cargo-fuzz`); more arguments go to libFuzzer.
#
# FUZZ_CORPUS is where texts are kept (sim/fuzz/corpus/ptx), of at most FUZZ_TEXT_MAX bytes; runs.tsv
# beside it has the figures of every run: a campaign is the sum of those of one code.
set -euo pipefail
cd "$(dirname "$0")/../sim/fuzz"

SECONDS_MAX=${FUZZ_SECONDS:-1800}
CORPUS=${FUZZ_CORPUS:-corpus/ptx}
# Bytes of a text: nine in ten of the tests' kernels are shorter. With 2048 there are twice as many
# executions in a second.
TEXT_MAX=${FUZZ_TEXT_MAX:-32768}

fail() { printf 'fuzz-sim: %s\n' "$*" >&2; exit 1; }
cargo fuzz --version >/dev/null 2>&1 || fail "cargo-fuzz not found: cargo install cargo-fuzz"
cargo +nightly --version >/dev/null 2>&1 || fail "no nightly compiler: rustup install nightly"

# A seed for each kernel: what precedes the first one and all device functions, then the kernel.
mkdir -p "$CORPUS"
rm -f "$CORPUS"/seed-*
shopt -s globstar
for file in ../tests/**/*.ptx; do
    name=${file#../tests/} name=${name%.ptx} name=${name//\//-}
    awk -v out="$CORPUS/seed-$name" '
        /\.entry/ { entry++; inside = 1 }
        inside { kernels[entry] = kernels[entry] $0 "\n"; if (/^}/) inside = 0; next }
        { rest = rest $0 "\n" }
        END { for (k = 1; k <= entry; k++) printf "%s%s", rest, kernels[k] > (out "-" k) }
    ' "$file"
done
find "$CORPUS" -name 'seed-*' -size +${TEXT_MAX}c -delete

# Half of the time is the allocator's: with jemalloc there are 2.5 times as many executions.
# A user other than root may not have ldconfig in the path: then it is left out.
jemalloc=$(ldconfig -p 2>/dev/null | awk '/libjemalloc\.so\.2/ { path = $NF } END { print path }' || true)
if [ -n "$jemalloc" ]; then
    export LD_PRELOAD=$jemalloc
    export MALLOC_CONF=dirty_decay_ms:2000,narenas:1,lg_tcache_max:20
fi

# Comparisons are not traced, nor rare features weighed, nor mutations piled up: they halve the
# executions per second, or the share of texts that load.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
code=$(cat ../src/*.rs ../src/**/*.rs fuzz_targets/*.rs | sha256sum | cut -c1-12)
status=0
cargo +nightly fuzz run --sanitizer none --no-trace-compares ptx "$CORPUS" -- -dict=ptx.dict \
    -max_len=$TEXT_MAX -mutate_depth=3 -entropic=0 -timeout=20 -rss_limit_mb=3000 \
    -max_total_time="$SECONDS_MAX" -print_final_stats=1 "$@" 2>&1 | tee "$log" || status=$?

figure() { sed -n "s/^stat::$1: *//p" "$log" | tail -1; }
seconds=$(sed -n 's/^Done .* runs in \([0-9]*\) second.*/\1/p' "$log")
covered=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
runs=$CORPUS/../runs.tsv
[ -e "$runs" ] || printf 'code\tseconds\texecutions\tloaded\tcompleted\tcovered\tstatus\n' > "$runs"
printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$code" "$seconds" \
    "$(figure number_of_executed_units)" "$(figure loaded_units)" "$(figure completed_kernels)" \
    "$covered" "$status" >> "$runs"
awk -F '\t' -v code="$code" '
    $1 != code { next }
    { runs++; seconds += $2; executions += $3; loaded += $4; completed += $5; bad += $7 != 0 }
    END {
        printf "fuzz-sim: %d runs of this code: %d executions in %d s, ", runs, executions, seconds
        printf "%d texts loaded, %d kernels completed, %d runs failed\n", loaded, completed, bad
    }' "$runs"
exit "$status"
