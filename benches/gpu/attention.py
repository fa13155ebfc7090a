#!/usr/bin/env python3
"""Compares scaled dot product attention on one GPU, in one run: Kiln, and torch's backends (cuDNN,
FlashAttention), forward, bf16.

Prefill at head sizes 64, 128 and 256, full and causal, 2048 to 16384 tokens of 32 heads, and decode:
one query of 32 heads on 8 heads of keys and values, together more than twice the L2 cache, so that
they come from memory. FlashAttention 3 is measured where its package (flash_attn_interface) is
installed, and said to be absent where not. TFLOP/s count two products of every score that takes
part.

Needs an NVIDIA GPU; PyTorch for the peers; the binary `kiln` for Kiln (in $KILN_BINARY, in
${CARGO_TARGET_DIR:-target}/release, or beside this file). What is missing is named, and the rest is
measured. Writes attention.json, or attention-PART.json, to $OUT (or ./out) after every layer, and a
table to stdout.
"""

import sys

import peers
import problems

TOKENS = 16384
# The L2 caches of H100 and H200 have 50 and 60 MB.
DECODE_BYTES_MIN = 2 * 60_000_000
ABSENT = {"FlashAttention 3": "flash_attn_interface"}


def cases():
    """Layers by group: batch, heads, heads of keys, queries, keys, head size, causal."""
    prefill = [
        ("prefill", max(TOKENS // tokens, 1), 32, 32, tokens, tokens, depth, causal)
        for depth in (64, 128, 256)
        for causal in (False, True)
        for tokens in (2048, 4096, 8192, 16384)
    ]
    # 134 MB of keys and values, 268 MB, 2.1 GB.
    decode = [
        ("decode", batch, 32, 8, 1, tokens, 128, False)
        for batch, tokens in ((1, 32768), (8, 8192), (64, 8192))
    ]
    keys = ("group", "batch", "heads", "kv_heads", "queries", "keys", "depth", "causal")
    listed = [dict(zip(keys, case)) for case in prefill + decode]
    assert all(kv_bytes(case) > DECODE_BYTES_MIN for case in listed if case["group"] == "decode")
    return listed


def kv_bytes(case):
    """Bytes of keys and values."""
    return 2 * 2 * case["batch"] * case["kv_heads"] * case["keys"] * case["depth"]


def kiln_command(case):
    """The arguments of `kiln bench`."""
    command = ["attention", "--dtype=bf16"]
    for key in ("batch", "heads", "kv_heads", "queries", "keys", "depth"):
        command.append(f"--{key.replace('_', '-')}={case[key]}")
    return command + ["--causal"] * case["causal"]


def problem(case):
    """The layer as a graph."""
    graph = problems.Graph()

    def tensor(name, heads, rows):
        dims = [case["batch"], case[heads], case[rows], case["depth"]]
        return graph.tensor(name, "bf16", dims)

    slots = {"q": tensor("q", "heads", "queries"), "o": tensor("o", "heads", "queries")}
    slots |= {name: tensor(name, "kv_heads", "keys") for name in ("k", "v")}
    graph.then(attention="f32", **({"right": 0} if case["causal"] else {}), **slots)
    return graph


def torch_calls(torch, case):
    """torch's backends by name, and FlashAttention 3."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def values(heads, rows):
        shape = (case["batch"], heads, rows, case["depth"])
        return torch.empty(shape, dtype=torch.bfloat16, device="cuda").uniform_(-0.25, 0.25)

    q = values(case["heads"], case["queries"])
    k, v = (values(case["kv_heads"], case["keys"]) for _ in range(2))
    grouped = case["heads"] != case["kv_heads"]

    def backend(which):
        def call():
            with sdpa_kernel(which):
                return torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=case["causal"], enable_gqa=grouped
                )

        # What the host pays is not what is compared.
        return lambda: peers.captured(torch, call)

    def flash3():
        from flash_attn_interface import flash_attn_func

        rows = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
        return peers.captured(torch, lambda: flash_attn_func(*rows, causal=case["causal"]))

    calls = {
        "cudnn": backend(SDPBackend.CUDNN_ATTENTION),
        "flash": backend(SDPBackend.FLASH_ATTENTION),
    }
    return calls if peers.absent(ABSENT) else calls | {"flash3": flash3}


def describe(case):
    """A line's beginning."""
    name = f"B {case['batch']} Sq {case['queries']} Sk {case['keys']} D {case['depth']}"
    name += " causal" if case["causal"] else ""
    rate = case.get("kiln", {}).get("teraflops")
    if case["group"] == "decode":
        us = case.get("kiln", {}).get("pass_us")
        return name + (f" {kv_bytes(case) / us / 1e3:.0f} GB/s" if us else "")
    return name + (f" {rate:.0f} TFLOP/s" if rate else "")


def main():
    parser = peers.parser(__doc__)
    parser.add_argument("--depth", type=int, help="only this head size")
    parser.add_argument("--group", choices=("prefill", "decode"), help="only these layers")
    options = parser.parse_args()
    chosen = [
        case
        for case in cases()
        if options.depth in (None, case["depth"]) and options.group in (None, case["group"])
    ]
    parts = ["attention", options.group, options.depth and str(options.depth)]
    name = "-".join(part for part in parts if part)
    return peers.compare(options, name, chosen, kiln_command, torch_calls, describe, ABSENT)


if __name__ == "__main__":
    sys.exit(main())
