"""Writes torch.json and torch.safetensors: torch's attention as Kiln problems.

    pip install torch safetensors
    python3 tests/data/attention/torch_cases.py

Tensors are named `case/tensor`. Operands are random, rounded to the case's type; `o` is what torch
gives in f64. `error` is how far torch is from that when it computes step by step in the case's type,
`atol` how far a result is when it is rounded twice, doubled: FlashAttention's tests allow twice the
one plus the other (Dao-AILab/flash-attention, tests/test_flash_attn.py). Written with torch 2.5.1 on a
CPU.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

# Extents [batch, heads, kv_heads, queries, keys, depth, width], and what else torch is given.
VARIANTS = {
    "plain": ([1, 2, 2, 33, 40, 24, 24], {}),
    "causal": ([1, 2, 2, 40, 40, 16, 16], {"is_causal": True}),
    "causal_few_queries": ([1, 2, 2, 17, 40, 16, 16], {"is_causal": True}),
    "causal_few_keys": ([1, 2, 2, 40, 17, 16, 16], {"is_causal": True}),
    "grouped": ([1, 6, 2, 20, 24, 16, 16], {"enable_gqa": True}),
    "grouped_causal": ([1, 4, 1, 33, 33, 16, 16], {"enable_gqa": True, "is_causal": True}),
    "one_query": ([2, 4, 2, 1, 40, 16, 16], {"enable_gqa": True}),
    "mask": ([2, 1, 1, 20, 35, 16, 16], {"mask": True}),
    "bias": ([1, 2, 2, 20, 35, 16, 16], {"bias": True}),
    "wide_values": ([1, 2, 2, 20, 24, 16, 24], {}),
    "narrow_values": ([1, 2, 2, 12, 24, 40, 8], {"is_causal": True}),
    "scale": ([1, 2, 2, 12, 24, 33, 33], {"scale": 0.5}),
}


def case(name, dtype, extents, given):
    """The problem of a variant, and its tensors."""
    batch, heads, kv_heads, queries, keys, depth, width = extents
    given = dict(given)
    random = lambda *dims: torch.randn(*dims).to(TYPES[dtype])
    operands = {
        "q": random(batch, heads, queries, depth),
        "k": random(batch, kv_heads, keys, depth),
        "v": random(batch, kv_heads, keys, width),
    }
    sdpa = {
        "dtype": dtype,
        "batch": batch,
        "heads": heads,
        "kv_heads": kv_heads,
        "queries": queries,
        "keys": keys,
        "depth": depth,
        "width": width,
    }
    if given.get("is_causal"):
        sdpa["right"] = 0
    if "scale" in given:
        sdpa["scale"] = given["scale"]
    attn_mask = None
    if given.pop("mask", False):
        # Every query attends to the first key at least.
        attn_mask = torch.rand(batch, 1, queries, keys) < 0.6
        attn_mask[..., 0] = True
        operands["mask"] = attn_mask
        sdpa["tensors"] = ["mask"]
    if given.pop("bias", False):
        attn_mask = random(1, heads, queries, keys)
        operands["bias"] = attn_mask
        sdpa["tensors"] = ["bias"]

    def attend(to):
        own = lambda tensor: tensor.to(to) if tensor.is_floating_point() else tensor
        masked = None if attn_mask is None else own(attn_mask)
        q, k, v = (own(operands[slot]) for slot in "qkv")
        with sdpa_kernel(SDPBackend.MATH):
            return scaled_dot_product_attention(q, k, v, attn_mask=masked, **given)

    exact = attend(torch.float64)
    low = exact.to(TYPES[dtype])
    index = {
        "name": f"{name}_{dtype}",
        "problem": {"sdpa": sdpa},
        "error": (attend(TYPES[dtype]).double() - exact).abs().max().item(),
        "atol": 2 * ((low + 0.3 - 0.3).double() - low.double()).abs().max().item(),
    }
    tensors = {**operands, "o": exact}
    return index, {f"{index['name']}/{slot}": of.contiguous() for slot, of in tensors.items()}


def main():
    torch.manual_seed(5)
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    cases, tensors = [], {}
    for name, (extents, given) in VARIANTS.items():
        for dtype in TYPES:
            index, own = case(name, dtype, extents, given)
            cases.append(index)
            tensors |= own
    here = Path(__file__).parent
    save_file(tensors, here / "torch.safetensors")
    lines = ",\n".join(json.dumps(of) for of in cases)
    (here / "torch.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
