"""Writes gradients.json and gradients.safetensors: gradients of torch's attention, as Kiln problems.

    pip install torch safetensors
    python3 tests/data/attention/torch_gradients.py

Tensors are named `case/tensor`, in double precision. Gradients are those that torch's autograd gives
of `(o * do).sum() + (lse * dlse).sum()`. Where torch's scaled_dot_product_attention computes the case,
`o` is its result; else the scores are written out, as flex_attention's modifications are. Written with
torch 2.15.0 on a CPU.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

F64 = torch.float64

# Extents [batch, heads, kv_heads, queries, keys, depth, width], and what there is besides.
VARIANTS = {
    "plain": ([1, 2, 2, 9, 11, 8, 8], {}),
    "causal": ([2, 2, 2, 10, 10, 6, 4], {"right": 0}),
    "causal_few_queries": ([1, 2, 2, 5, 12, 6, 6], {"right": 0}),
    "causal_few_keys": ([1, 2, 2, 12, 5, 6, 6], {"right": 0}),
    "grouped": ([1, 6, 2, 7, 9, 5, 5], {}),
    "one_key_head": ([1, 4, 1, 7, 7, 5, 3], {"right": 0}),
    "scale": ([1, 2, 2, 7, 9, 5, 5], {"scale": 0.7}),
    "mask": ([2, 2, 1, 7, 9, 5, 5], {"mask": True}),
    "bias": ([2, 2, 2, 7, 9, 5, 5], {"bias": [1, 2, 7, 9]}),
    "bias_of_keys": ([2, 2, 2, 7, 9, 5, 5], {"bias": [2, 1, 1, 9]}),
    "softcap": ([1, 4, 2, 7, 9, 5, 5], {"softcap": 1.5, "bias": [1, 4, 7, 9]}),
    "softcap_last": ([1, 4, 2, 7, 9, 5, 5], {"softcap": 1.5, "softcap_last": True, "bias": [1, 1, 7, 1]}),
    "slopes": ([2, 4, 2, 7, 9, 5, 5], {"slopes": True, "right": 0}),
    "sinks": ([2, 4, 2, 7, 9, 5, 5], {"sinks": True, "dlse": True}),
    "window": ([1, 2, 1, 12, 12, 5, 5], {"left": 3, "right": 1, "dlse": True}),
    "everything": (
        [2, 4, 2, 8, 9, 5, 4],
        {"softcap": 2.0, "bias": [2, 4, 8, 9], "slopes": True, "sinks": True, "right": 0, "dlse": True},
    ),
}


def written_out(given, operands, keep, scale):
    """`o` and `lse` from scores that are written out."""
    q, k, v = (operands[slot] for slot in "qkv")
    group = q.shape[1] // k.shape[1]
    k, v = (of.repeat_interleave(group, 1) for of in (k, v))
    scores = scale * (q @ k.transpose(2, 3))
    queries, keys = scores.shape[2:]
    capped = lambda of: given["softcap"] * torch.tanh(of / given["softcap"])
    last = given.get("softcap_last", False)
    if "softcap" in given and not last:
        scores = capped(scores)
    if "bias" in operands:
        scores = scores + operands["bias"]
    if "slopes" in operands:
        distance = torch.arange(keys, dtype=F64)[None, :] - torch.arange(queries, dtype=F64)[:, None]
        scores = scores + operands["slopes"] * distance
    if last:
        scores = capped(scores)
    scores = scores.masked_fill(~keep, float("-inf"))
    rest = [operands["sinks"].expand(*scores.shape[:3], 1)] if "sinks" in operands else []
    lse = torch.logsumexp(torch.cat([scores, *rest], 3), 3, keepdim=True)
    return torch.exp(scores - lse) @ v, lse


def case(name, extents, given):
    """The problem of a variant, and its tensors."""
    batch, heads, kv_heads, queries, keys, depth, width = extents
    random = lambda *dims: torch.randn(*dims, dtype=F64)
    operands = {
        "q": random(batch, heads, queries, depth),
        "k": random(batch, kv_heads, keys, depth),
        "v": random(batch, kv_heads, keys, width),
    }
    if "bias" in given:
        operands["bias"] = random(*given["bias"])
    if given.get("slopes"):
        operands["slopes"] = random(1, heads, 1, 1) / 4
    if given.get("sinks"):
        operands["sinks"] = random(1, heads, 1, 1)
    for of in operands.values():
        of.requires_grad_()
    distance = torch.arange(keys)[None, :] - torch.arange(queries)[:, None]
    keep = torch.ones(batch, 1, queries, keys, dtype=torch.bool)
    keep &= distance <= given.get("right", keys)
    keep &= distance >= -given.get("left", queries)
    attributes = {key: given[key] for key in ("left", "right", "scale", "softcap") if key in given}
    if given.get("softcap_last"):
        attributes["softcap_last"] = True
    others = {}
    if given.get("mask"):
        others["mask"] = torch.rand(batch, 1, queries, keys) < 0.6
        others["mask"][..., 0] = True
        keep &= others["mask"]
    scale = given.get("scale", depth**-0.5)
    o, lse = written_out(given, operands, keep, scale)
    if not any(key in given for key in ("softcap", "slopes", "sinks", "dlse")):
        bias = operands.get("bias", torch.zeros(1, dtype=F64))
        with sdpa_kernel(SDPBackend.MATH):
            own = scaled_dot_product_attention(
                operands["q"], operands["k"], operands["v"],
                attn_mask=bias.masked_fill(~keep, float("-inf")), scale=scale, enable_gqa=True,
            )
        assert (own - o).abs().max() < 1e-12
        o = own
    others["do"] = random(*o.shape)
    loss = (o * others["do"]).sum()
    if given.get("dlse"):
        others["dlse"] = random(*lse.shape)
        loss = loss + (lse * others["dlse"]).sum()
    loss.backward()
    gradients = {f"d{slot}": of.grad for slot, of in operands.items()}
    tensors = {**operands, **others, "o": o, "lse": lse, **gradients}
    types = {F64: "f64", torch.bool: "bool"}
    described = [
        {"name": slot, "dtype": types[of.dtype], "dims": list(of.shape)} for slot, of in tensors.items()
    ]
    operation = {"attention_backward": "f64", **attributes, **{slot: slot for slot in tensors}}
    problem = {"tensors": described, "operations": [operation]}
    index = {"name": name, "problem": {"graph": problem}}
    return index, {f"{name}/{slot}": of.detach().contiguous() for slot, of in tensors.items()}


def main():
    torch.manual_seed(7)
    cases, tensors = [], {}
    for name, (extents, given) in VARIANTS.items():
        index, own = case(name, extents, given)
        cases.append(index)
        tensors |= own
    here = Path(__file__).parent
    save_file(tensors, here / "gradients.safetensors")
    lines = ",\n".join(json.dumps(of) for of in cases)
    (here / "gradients.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
