#!/usr/bin/env bash
# Installs what a checkout needs and is not there. Says what it does; does nothing the second time.
set -euo pipefail
cd "$(dirname "$0")/.."

NVRTC_VERSION=13.0.88
FOLDER=third_party/nvrtc

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

command -v cargo >/dev/null || fail "cargo not found: install Rust 1.89 or newer with rustup"
command -v cc >/dev/null || fail "cc not found: install a C compiler (Debian: apt-get install gcc)"

# An NVRTC that the library finds by itself is used as it is.
if [ -n "${KILN_NVRTC:-}" ]; then
    say "NVRTC: KILN_NVRTC=$KILN_NVRTC"
    exit 0
fi
for root in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /opt/cuda; do
    if [ -n "$root" ]; then
        for name in "$root"/lib64/libnvrtc.so.1[23]; do
            if [ -e "$name" ]; then
                say "NVRTC: $name (installed toolkit)"
                exit 0
            fi
        done
    fi
done

if [ "$(cat "$FOLDER/VERSION" 2>/dev/null || true)" = "$NVRTC_VERSION" ]; then
    say "NVRTC: $FOLDER ($NVRTC_VERSION)"
    exit 0
fi

command -v python3 >/dev/null || fail "python3 not found: install it, or set KILN_NVRTC"
if ! python3 -m pip --version >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing python3-pip"
        apt-get update -qq && apt-get install -qq -y python3-pip >/dev/null
    else
        fail "pip not found: install it (Debian: apt-get install python3-pip), or set KILN_NVRTC"
    fi
fi

say "installing NVRTC $NVRTC_VERSION from PyPI into $FOLDER (90 MB, once)"
rm -rf "$FOLDER.tmp"
mkdir -p third_party
python3 -m pip install --quiet --disable-pip-version-check --no-deps \
    --root-user-action=ignore --target "$FOLDER.tmp" "nvidia-cuda-nvrtc==$NVRTC_VERSION"
# The .alt libraries are a second build for debugging; half the size goes with them.
rm -f "$FOLDER.tmp"/nvidia/cu13/lib/*.alt.so.*
printf '%s\n' "$NVRTC_VERSION" > "$FOLDER.tmp/VERSION"
rm -rf "$FOLDER"
mv "$FOLDER.tmp" "$FOLDER"
say "NVRTC: $FOLDER ($NVRTC_VERSION)"
