#!/usr/bin/env python3
"""Compares scaled dot product attention on one GPU, in one run: Kiln, and torch's backends (cuDNN,
FlashAttention), forward, bf16.

Prefill at head sizes 64, 128 and 256, full and causal, 2048 to 16384 tokens of 32 heads, and decode:
one query of 32 heads on 8 heads of keys and values. FlashAttention 3 is measured where its package
(flash_attn_interface) is installed. TFLOP/s count two products of every score that takes part.

Needs an NVIDIA GPU; PyTorch for the peers; the binary `kiln` for Kiln (in $KILN_BINARY, in
${CARGO_TARGET_DIR:-target}/release, or beside this file). What is missing is named, and the rest is
measured. Writes attention.json to $OUT (or ./out) and a table to stdout.
"""

import sys

import peers

TOKENS = 16384


def cases():
    """Layers by group: batch, heads, heads of keys, queries, keys, head size, causal."""
    prefill = [
        ("prefill", max(TOKENS // tokens, 1), 32, 32, tokens, tokens, depth, causal)
        for depth in (64, 128, 256)
        for causal in (False, True)
        for tokens in (2048, 4096, 8192, 16384)
    ]
    decode = [("decode", batch, 32, 8, 1, 8192, 128, False) for batch in (1, 8, 64)]
    keys = ("group", "batch", "heads", "kv_heads", "queries", "keys", "depth", "causal")
    return [dict(zip(keys, case)) for case in prefill + decode]


def kiln_command(case):
    """The arguments of `kiln bench`."""
    command = ["attention", "--dtype=bf16"]
    for key in ("batch", "heads", "kv_heads", "queries", "keys", "depth"):
        command.append(f"--{key.replace('_', '-')}={case[key]}")
    return command + ["--causal"] * case["causal"]


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

    return {
        "cudnn": backend(SDPBackend.CUDNN_ATTENTION),
        "flash": backend(SDPBackend.FLASH_ATTENTION),
        "flash3": flash3,
    }


def describe(case):
    """A line's beginning."""
    name = f"B {case['batch']} Sq {case['queries']} Sk {case['keys']} D {case['depth']}"
    name += " causal" if case["causal"] else ""
    rate = case.get("kiln", {}).get("teraflops")
    return name + (f" {rate:.0f} TFLOP/s" if rate else "")


def main():
    parser = peers.parser(__doc__)
    parser.add_argument("--depth", type=int, help="only this head size")
    options = parser.parse_args()
    chosen = [case for case in cases() if options.depth in (None, case["depth"])]
    return peers.compare(options, "attention", chosen, kiln_command, torch_calls, describe)


if __name__ == "__main__":
    sys.exit(main())
