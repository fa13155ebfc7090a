#!/bin/sh
# Runs the tests of the kit (kit.sh) on the GPU; arguments go to them, such as a name. They look for
# files where they were built: if nothing is there, it becomes a link to this checkout.
set -eu
cd "$(dirname "$0")/../.."
kit=$PWD/out/gpu
[ -x "$kit/it" ] || { echo "missing: $kit/it, which benches/gpu/kit.sh builds" >&2; exit 1; }
{ read -r root && read -r binaries; } <"$kit/built"
if [ ! -e "$root" ]; then
    mkdir -p "$(dirname "$root")"
    ln -s "$PWD" "$root"
fi
[ "$root" -ef "$PWD" ] || { echo "the tests were built in $root, which is another checkout" >&2; exit 1; }
mkdir -p "$binaries" "${binaries%/*}/tmp"
[ -x "$binaries/kiln" ] || cp "$kit/kiln" "$binaries/kiln"
KILN_DEVICE=${KILN_DEVICE:-cuda:0} exec "$kit/it" "$@"
