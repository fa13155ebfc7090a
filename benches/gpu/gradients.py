#!/usr/bin/env python3
"""Compares gradients of attention on one GPU, in one run: Kiln, and torch's backends, bf16.

dQ, dK and dV of 32 heads, full and causal, 2048 and 8192 tokens of 16384 in all, head sizes 64 and
128; the forward pass is not counted. A pass takes milliseconds, so that torch's calls wait for no
host.

Needs an NVIDIA GPU; PyTorch for the peers; the binary `kiln` for Kiln (in $KILN_BINARY, in
${CARGO_TARGET_DIR:-target}/release, or beside this file). What is missing is named, and the rest is
measured. Writes gradients.json to $OUT (or ./out) after every layer, and a table to stdout.
"""

import sys

import peers
import problems

TOKENS = 16384
HEADS = 32


def cases(tokens):
    """Layers: batch, tokens, head size, causal."""
    return [
        {
            "group": "attention",
            "batch": max(tokens // rows, 1),
            "heads": HEADS,
            "tokens": rows,
            "depth": depth,
            "causal": causal,
        }
        for depth in (64, 128)
        for causal in (False, True)
        for rows in (tokens // 8, tokens // 2)
    ]


def problem(case):
    """The gradients as a graph."""
    graph = problems.Graph()
    dims = [case["batch"], case["heads"], case["tokens"], case["depth"]]
    slots = {name: graph.tensor(name, "bf16", dims) for name in ("q", "k", "v", "o", "do")}
    slots["lse"] = graph.tensor("lse", "f32", [*dims[:3], 1])
    slots |= {name: graph.tensor(name, "bf16", dims) for name in ("dq", "dk", "dv")}
    band = {"right": 0} if case["causal"] else {}
    graph.then(attention_backward="f32", **band, **slots)
    return graph


def torch_calls(torch, case):
    """torch's backends by name."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    dims = (case["batch"], case["heads"], case["tokens"], case["depth"])

    def values():
        return torch.empty(dims, dtype=torch.bfloat16, device="cuda").uniform_(-0.25, 0.25)

    def backend(which):
        def make():
            with torch.inference_mode(False), torch.enable_grad():
                q, k, v = (values().requires_grad_() for _ in range(3))
                do = values()
                with sdpa_kernel(which):
                    attend = torch.nn.functional.scaled_dot_product_attention
                    o = attend(q, k, v, is_causal=case["causal"])

                def call():
                    return torch.autograd.grad(o, (q, k, v), do, retain_graph=True)

                return call

        return make

    return {
        "cudnn": backend(SDPBackend.CUDNN_ATTENTION),
        "flash": backend(SDPBackend.FLASH_ATTENTION),
    }


def describe(case):
    """A line's beginning: five products of every score, two operations each."""
    name = f"B {case['batch']} S {case['tokens']} D {case['depth']}"
    name += " causal" if case["causal"] else ""
    scores = case["batch"] * case["heads"] * case["tokens"] ** 2 / (2 if case["causal"] else 1)
    us = case.get("kiln", {}).get("pass_us")
    return name + (f" {10 * scores * case['depth'] / us / 1e6:.0f} TFLOP/s" if us else "")


def main():
    parser = peers.parser(__doc__)
    parser.add_argument("--tokens", type=int, default=TOKENS, help="fewer, to try it out")
    options = parser.parse_args()
    chosen = cases(options.tokens)
    return problems.compare(options, "gradients", chosen, problem, torch_calls, describe)


if __name__ == "__main__":
    sys.exit(main())
