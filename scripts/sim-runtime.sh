#!/bin/bash
# Compiles programs with NVIDIA's compiler, headers and runtime libraries, and runs them with those
# of the simulator in their place. Needs the network once, for a folder with pinned packages, and
# no toolkit.
set -euo pipefail
cd "$(dirname "$0")/.."
clients=sim/runtime/clients
folder=${SIM_RUNTIME:-$PWD/target/sim-runtime}
python=${PYTHON:-python3}

if ! cmp -s $clients/requirements.txt "$folder/requirements.txt"; then
    rm -rf "$folder"
    mkdir -p "$folder"
    if ! "$python" -m pip install --quiet --no-deps --target "$folder" \
        --requirement $clients/requirements.txt; then
        echo "sim-runtime: skipped: the packages of $clients/requirements.txt did not install" >&2
        exit 0
    fi
    # Where the compiler looks for the runtime by the name that linkers know.
    ln -sf libcudart.so.13 "$folder/nvidia/cu13/lib/libcudart.so"
    cp $clients/requirements.txt "$folder/requirements.txt"
fi
cargo build --quiet -p kiln-sim -p kiln-sim-driver -p kiln-sim-runtime
cu12=$folder/nvidia/cuda_runtime cu13=$folder/nvidia/cu13
headers12=(-I "$cu12/include" -I "$folder/nvidia/cuda_nvcc/include")
headers13=(-I "$cu13/include")
on_gpu() { target/debug/kiln-sim exec --strict --gpu "$@"; }

# The table of functions is that of the libraries.
for version in 12 13; do
    library=$cu12/lib/libcudart.so.12
    [ $version = 12 ] || library=$cu13/lib/libcudart.so.13
    diff <(nm -D --defined-only "$library" | awk '{print $3}' | sed 's/@.*//' |
        grep -v '^libcudart' | LC_ALL=C sort) \
        <(awk -v version=$version '$2 == version || $3 == version {print $1}' \
            sim/runtime/tests/functions.txt | LC_ALL=C sort)
done

# What errors are called, by NVIDIA's library and by ours; structures, by NVIDIA's headers.
for version in 12 13; do
    headers="headers$version[@]" root=cu$version
    for program in texts properties; do
        cc -Wall -o "$folder/$program$version" $clients/$program.c "${!headers}" \
            "${!root}/lib/libcudart.so.$version"
    done
    diff <(LD_LIBRARY_PATH=${!root}/lib "$folder/texts$version") \
        <(on_gpu sim -- "$folder/texts$version")
    on_gpu h100 -- "$folder/properties$version"
done

# Kernels, in every way that images are compressed.
PATH=$cu13/bin:$PATH
for mode in none size speed balance; do
    nvcc -std=c++17 -cudart shared -gencode arch=compute_75,code=compute_75 \
        -gencode arch=compute_90,code=compute_90 --compress-mode=$mode -L "$cu13/lib" \
        -o "$folder/kernels_$mode" $clients/kernels.cu
    on_gpu sim -- "$folder/kernels_$mode" >"$folder/said"
    diff <(printf 'block 0\nblock 1\ndone\n') "$folder/said"
done
nvcc -std=c++17 -cudart shared -default-stream per-thread -L "$cu13/lib" \
    -o "$folder/kernels_per_thread" $clients/kernels.cu
for gpu in sm_75 sm_80 sm_89 sm_90 sm_100 sm_120; do
    on_gpu $gpu -- "$folder/kernels_per_thread" >/dev/null
done

# One that cannot run says what to do.
nvcc -std=c++17 -L "$cu13/lib" -o "$folder/kernels_static" $clients/kernels.cu
if said=$(on_gpu sim -- "$folder/kernels_static" 2>&1) || [[ $said != *"-cudart shared"* ]]; then
    echo "sim-runtime: a program with a static runtime: $said" >&2
    exit 1
fi
echo "sim-runtime: all programs ran"
