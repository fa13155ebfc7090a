#!/usr/bin/env bash
# From what a program asks for to a deployment that has no compiler: see README.md beside this.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kiln=${KILN:-kiln}
out=${1:-$(mktemp -d)}
mkdir -p "$out"
problems=()
for problem in "$here"/../problems/*.json; do # A server does not train.
    [[ $problem == *_training.json ]] || problems+=("$problem")
done
program() { # Stands for a server: it plans and runs every problem, and checks what comes out.
    for problem in "${problems[@]}"; do
        "$kiln" run "$problem" --random 1 --check --json --device sim
    done
}

# 1. What does the program ask for? On a machine that can compile, it writes that down itself.
manifest=$out/manifest.toml
rm -f "$manifest"
KILN_RECORD=$manifest program > "$out/recorded.jsonl"

# 2. On a machine with NVRTC, without a GPU: build the pack, sign it, prove it, try it.
pack=$out/kernels.kilnpack
"$kiln" pack build "$manifest" --target sim -o "$pack"
test -e "$out/key" || "$kiln" pack keygen -o "$out/key" > "$out/root"
"$kiln" pack sign "$pack" --key "$out/key"
"$kiln" pack covers "$manifest" "$pack" --target sim
"$kiln" pack verify "$pack"

# 3. On the machine that serves: no NVRTC, no cache, no compiling, only packs that are signed.
export KILN_PACKS=$pack KILN_TRUST_ROOTS KILN_NO_JIT=1 KILN_CACHE_DIR=off KILN_NVRTC=/nonexistent
KILN_TRUST_ROOTS=$(cat "$out/root")
program > "$out/served.jsonl"
# A kernel that another problem of the same process shares is a memory hit.
hits=$(grep -cE '"origin": *"(pack|memory) hit"' "$out/served.jsonl")
kernels=$(grep -c '"origin":' "$out/served.jsonl")
echo "served: $hits of $kernels kernels from the pack"
test "$hits" -eq "$kernels"

# 4. What was not packed is an error that says so, and never a compilation.
sed 's/1024/1000/' "$here/../problems/swish_backward.json" > "$out/unknown.json"
problems=("$out/unknown.json")
if program > "$out/unknown.log" 2>&1; then
    echo "an unknown problem was served" >&2
    exit 1
fi
grep 'no-JIT mode: kernel' "$out/unknown.log"
