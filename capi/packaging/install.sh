#!/bin/sh
# Installs libmcdnn, its headers, and what pkg-config and CMake ask for:
#     PREFIX=/usr/local DESTDIR= capi/packaging/install.sh TARGET_FOLDER
# TARGET_FOLDER holds libmcdnn.so and libmcdnn.a as cargo has built them.
set -eu

built=${1:?the folder of the built libraries}
prefix=${PREFIX:-/usr/local}
root=${DESTDIR:-}$prefix
own=$(cd "$(dirname "$0")/.." && pwd)

mkdir -p "$root/lib/pkgconfig" "$root/lib/cmake/mcdnn" "$root/include/compat" "$root/include/kiln"
install -m 755 "$built/libmcdnn.so" "$root/lib/libmcdnn.so.8.7.0"
ln -sf libmcdnn.so.8.7.0 "$root/lib/libmcdnn.so.8"
ln -sf libmcdnn.so.8 "$root/lib/libmcdnn.so"
if [ -f "$built/libmcdnn.a" ]; then
    install -m 644 "$built/libmcdnn.a" "$root/lib/libmcdnn.a"
fi
install -m 644 "$own"/include/*.h "$root/include/"
install -m 644 "$own"/include/compat/*.h "$root/include/compat/"
install -m 644 "$own"/include/kiln/*.hpp "$root/include/kiln/"
sed "s|@PREFIX@|$prefix|" "$own/packaging/mcdnn.pc.in" > "$root/lib/pkgconfig/mcdnn.pc"
install -m 644 "$own"/packaging/*.cmake "$root/lib/cmake/mcdnn/"
echo "installed libmcdnn 8.7.0 under $root"
