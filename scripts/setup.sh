#!/usr/bin/env bash
# Installs what a checkout needs and is not there. Says what it does; does nothing the second time.
set -euo pipefail
cd "$(dirname "$0")/.."

FOLDER=third_party/nvrtc

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

usage() {
    cat <<'END'
Usage: scripts/setup.sh [--cuda 12|13] [--print]

Installs what a checkout needs and is not there: NVRTC, into third_party/nvrtc. A driver of CUDA 12
takes no kernels of NVRTC 13, so the driver, if there is one, says which it is.

  --cuda 12|13   NVRTC for a driver of this CUDA version, whatever the driver here
  --print        say which NVRTC would be used or installed, and install nothing
END
}

cuda='' print=''
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        usage
        exit 0
        ;;
    --cuda)
        case ${2:-} in
        12 | 13) cuda=$2 ;;
        *) fail "--cuda is \`${2:-}\`: expected 12 or 13" ;;
        esac
        shift
        ;;
    --print) print=1 ;;
    *) fail "unknown argument \`$1\`: --help lists them" ;;
    esac
    shift
done

# Major CUDA version that the driver of a GPU supports; empty where there is none.
driver_cuda() {
    local asked='
import ctypes
driver, version = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
if driver.cuDriverGetVersion(ctypes.byref(version)) == 0 and version.value:
    print(version.value // 1000)
'
    python3 -c "$asked" 2>/dev/null && return
    nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9]*\).*/\1/p' | head -n 1 || true
}

if [ -z "$print" ]; then
    command -v cargo >/dev/null || fail "cargo not found: install Rust 1.89 or newer with rustup"
    command -v cc >/dev/null || fail "cc not found: install a C compiler (Debian: apt-get install gcc)"
fi

# An NVRTC that the library finds by itself is used as it is.
if [ -n "${KILN_NVRTC:-}" ]; then
    say "NVRTC: KILN_NVRTC=$KILN_NVRTC"
    exit 0
fi
why=''
if [ -z "$cuda" ]; then
    cuda=$(driver_cuda)
    [ -z "$cuda" ] || why=" for the driver here (CUDA $cuda)"
fi
# With a driver of CUDA 12 only NVRTC 12 will do; else the newest.
majors='13 12'
[ "${cuda:-13}" -ge 13 ] || majors=12
for root in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /opt/cuda; do
    for major in $majors; do
        name=$root/lib64/libnvrtc.so.$major
        if [ -n "$root" ] && [ -e "$name" ]; then
            say "NVRTC: $name (installed toolkit)"
            exit 0
        fi
    done
done

# The oldest driver that Kiln runs on is of CUDA 12.8.
case $majors in
12) version=12.8.93 package=nvidia-cuda-nvrtc-cu12 ;;
*) version=13.0.88 package=nvidia-cuda-nvrtc ;;
esac
if [ "$(cat "$FOLDER/VERSION" 2>/dev/null || true)" = "$version" ]; then
    say "NVRTC: $FOLDER ($version)"
    exit 0
fi
if [ -n "$print" ]; then
    say "NVRTC: $package==$version from PyPI$why, not installed yet"
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

say "installing NVRTC $version from PyPI$why into $FOLDER (90 MB, once)"
rm -rf "$FOLDER.tmp"
mkdir -p third_party
python3 -m pip install --quiet --disable-pip-version-check --no-deps \
    --root-user-action=ignore --target "$FOLDER.tmp" "$package==$version"
# The .alt libraries are a second build for debugging; half the size goes with them.
rm -f "$FOLDER.tmp"/nvidia/*/lib/*.alt.so.*
printf '%s\n' "$version" > "$FOLDER.tmp/VERSION"
rm -rf "$FOLDER"
mv "$FOLDER.tmp" "$FOLDER"
say "NVRTC: $FOLDER ($version)"
