#!/usr/bin/env bash
# Packs the four crates as they would be published, in the order that they must be: kiln-machine,
# which stands alone, kiln-sass and kiln-sim, which need it, then kiln, which needs all. Builds each from its
# package, and runs the tests that it holds. Publishes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Cargo builds each against the packages of the others, not against their folders.
crates=(kiln-machine kiln-sass kiln-sim kiln)
cargo package --locked --allow-dirty "${crates[@]/#/-p}"

for crate in "${crates[@]}"; do
    tar -xf "$(ls -t target/package/$crate-[0-9]*.crate | head -1)" -C "$folder"
done
for crate in "${crates[@]}"; do
    cd "$folder"/"$crate"-[0-9]*
    cat >> Cargo.toml <<EOF

[workspace]

[patch.crates-io]
kiln-machine = { path = "$(echo "$folder"/kiln-machine-[0-9]*)" }
kiln-sass = { path = "$(echo "$folder"/kiln-sass-[0-9]*)" }
kiln-sim = { path = "$(echo "$folder"/kiln-sim-[0-9]*)" }
EOF
    # None stands in for itself or for one that comes after it.
    case $crate in
        kiln-machine) sed -i '/^\[patch.crates-io\]$/,$d' Cargo.toml ;;
        kiln-sass | kiln-sim) sed -i '/^kiln-s[a-z]* = { path/d' Cargo.toml ;;
    esac
    # Documentation is tested in the checkout; what is left needs no NVRTC. The profiles of the
    # workspace are not packed, and the simulator is slow without optimization.
    CARGO_PROFILE_DEV_OPT_LEVEL=2 CARGO_TARGET_DIR="$root/target/packaged" cargo test --offline --quiet --lib --tests --bins
    echo "package: $(basename "$PWD"): its tests pass"
done
