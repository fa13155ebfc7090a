#!/usr/bin/env bash
# Packs both crates as they would be published, in the order that they must be: kiln-sim, which
# stands alone, then kiln, which needs it. Builds each from its package, and runs the tests that it
# holds. Publishes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Cargo builds kiln against the package of kiln-sim, not against its folder.
cargo package --locked --allow-dirty -p kiln-sim -p kiln

for crate in kiln-sim kiln; do
    tar -xf "$(ls -t target/package/$crate-[0-9]*.crate | head -1)" -C "$folder"
done
for crate in kiln-sim kiln; do
    cd "$folder"/"$crate"-[0-9]*
    cat >> Cargo.toml <<EOF

[workspace]

[patch.crates-io]
kiln-sim = { path = "$(echo "$folder"/kiln-sim-[0-9]*)" }
EOF
    # The simulator needs nothing of its own.
    [ "$crate" = kiln ] || sed -i '/^\[patch.crates-io\]$/,$d' Cargo.toml
    # Documentation is tested in the checkout; what is left needs no NVRTC. The profiles of the
    # workspace are not packed, and the simulator is slow without optimization.
    CARGO_PROFILE_DEV_OPT_LEVEL=2 CARGO_TARGET_DIR="$root/target/packaged" cargo test --offline --quiet --lib --tests --bins
    echo "package: $(basename "$PWD"): its tests pass"
done
