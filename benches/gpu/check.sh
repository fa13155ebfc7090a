#!/usr/bin/env bash
# Runs the tests of the kit (kit.sh) on the GPU, as check.py does: a group in each process, what
# fails once more alone. Arguments go to it, such as a name; --help lists them. The tests look for
# files where they were built: if nothing is there, it becomes a link to this checkout.
set -euo pipefail
cd "$(dirname "$0")/../.."
for argument in "$@"; do
    case $argument in
    -h | --help) exec python3 benches/gpu/check.py --help ;;
    esac
done
kit=$PWD/out/gpu
[ -x "$kit/it" ] || { echo "missing: $kit/it, which benches/gpu/kit.sh builds" >&2; exit 1; }
{ read -r root && read -r binaries; } <"$kit/built"
if [ ! -e "$root" ]; then
    mkdir -p "$(dirname "$root")"
    ln -s "$PWD" "$root"
fi
if [ ! "$root" -ef "$PWD" ]; then
    echo "the tests were built in $root, which is another checkout" >&2
    exit 1
fi
mkdir -p "$binaries" "${binaries%/*}/tmp"
[ -x "$binaries/kiln" ] || cp "$kit/kiln" "$binaries/kiln"
exec python3 benches/gpu/check.py --binary "$kit/it" "$@"
