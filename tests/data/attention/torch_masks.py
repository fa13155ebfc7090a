"""Writes masks.json and masks.safetensors: torch's attention with masks as serving stacks add them.

    pip install torch safetensors
    python3 tests/data/attention/torch_masks.py

Tensors are named `case/tensor`, or as `shared` says where cases share them. Each sequence has a constant
of its own: finfo.min of the case's type as in HF transformers, -1e9 of many models, -1e30, and minus
infinity of vLLM and torch. `o` is what scaled_dot_product_attention gives for the operands in f32; soft
caps, which it lacks, are Gemma 2's formula. `error` is how far torch is from that when it computes in the
case's type, or, for f32, in f64: in rows that have a key, as f64 tells masked keys apart. `atol` is how
far a result is when it is rounded twice, doubled (torch_cases.py says why). Written with torch 2.15.0 on
a CPU.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn.functional import scaled_dot_product_attention

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}

SEQUENCES, HEADS, KV_HEADS, QUERIES, KEYS, ELEMENTS = 4, 2, 1, 6, 72, 16
CAP = 30.0


def constants(dtype):
    return [torch.finfo(dtype).min, -1e9, -1e30, float("-inf")]


def causal(query, key):
    """The last query is at the last key, as behind a cache."""
    return key <= query + KEYS - QUERIES


def kept(name, sequence):
    """Which keys the queries of a sequence attend to."""
    query, key = torch.arange(QUERIES)[:, None], torch.arange(KEYS)[None, :]
    if name == "left_padding":
        return causal(query, key) & (key >= sequence)
    if name == "masked_rows":
        # As of left padding in a prompt: the first queries are padding and attend to nothing.
        return causal(query, key) & (query > sequence)
    if name == "window":
        return causal(query, key) & (key > query + KEYS - QUERIES - 64)
    return (key * 7 + query * 5 + sequence) % 9 != 0


MASKS = ["left_padding", "masked_rows", "window", "gaps"]


def capped(q, k, v, mask):
    """Gemma 2: the cap is in front of the mask."""
    group = q.shape[1] // k.shape[1]
    k, v = (of.repeat_interleave(group, 1) for of in (k, v))
    scores = CAP * torch.tanh(q @ k.mT / q.shape[-1] ** 0.5 / CAP) + mask
    return torch.softmax(scores, -1) @ v


def attend(q, k, v, mask, cap):
    if cap:
        return capped(q, k, v, mask)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


def index(name, dtype, sdpa, shared, results):
    """The entry of a case: how far torch is from its results in f32."""
    in_type, in_f64, o, some = results
    other = in_f64 if dtype == "f32" else in_type
    off = (other.double() - o.double()).abs()[some]
    low = o.to(TYPES[dtype])
    return {
        "name": f"{name}_{dtype}",
        "shared": shared,
        "problem": {"sdpa": {"dtype": dtype, **sdpa}},
        "error": off.max().item(),
        "atol": 2 * ((low + 0.3 - 0.3).double() - low.double()).abs().max().item(),
    }


def masked(name, dtype, operands, cap=False):
    q, k, v = operands
    given = torch.zeros(SEQUENCES, 1, QUERIES, KEYS)
    for sequence, constant in enumerate(constants(TYPES[dtype])):
        given[sequence, 0][~kept(name, sequence)] = constant
    given = given.to(TYPES[dtype])
    o = attend(q.float(), k.float(), v.float(), given.float(), cap)
    # A row that is masked in every key is one of means: nothing in it depends on how scores round.
    some = (given > -1).any(-1)[..., None].expand_as(o) if dtype == "f32" else torch.ones_like(o) > 0
    results = (
        attend(q, k, v, given, cap),
        attend(q.double(), k.double(), v.double(), given.double(), cap),
        o,
        some & o.isfinite(),
    )
    sdpa = {
        "batch": SEQUENCES,
        "heads": HEADS,
        "kv_heads": KV_HEADS,
        "queries": QUERIES,
        "keys": KEYS,
        "depth": ELEMENTS,
        "tensors": [{"name": "bias", "dtype": dtype, "dims": list(given.shape)}],
    }
    if cap:
        sdpa["softcap"] = CAP
    own = f"{name}_capped" if cap else name
    shared = {slot: f"operands_{dtype}" for slot in "qkv"}
    if cap:
        shared["bias"] = f"{name}_{dtype}"
    entry = index(own, dtype, sdpa, shared, results)
    tensors = {"o": o} if cap else {"o": o, "bias": given}
    return entry, {f"{entry['name']}/{slot}": of for slot, of in tensors.items()}


def latent(dtype, keys):
    """DeepSeek's prefill: values are narrower than keys."""
    random = lambda *dims: torch.randn(*dims).to(TYPES[dtype])
    q, k, v = random(1, 2, 5, 192), random(1, 1, keys, 192), random(1, 1, keys, 128)
    mask = torch.zeros(1, 1, 5, keys)
    mask[..., :3] = torch.finfo(TYPES[dtype]).min
    mask = mask.to(TYPES[dtype])
    o = attend(q.float(), k.float(), v.float(), mask.float(), False)
    results = (
        attend(q, k, v, mask, False),
        attend(q.double(), k.double(), v.double(), mask.double(), False),
        o,
        torch.ones_like(o) > 0,
    )
    sdpa = {
        "heads": 2,
        "kv_heads": 1,
        "queries": 5,
        "keys": keys,
        "depth": 192,
        "width": 128,
        "tensors": [{"name": "bias", "dtype": dtype, "dims": list(mask.shape)}],
    }
    entry = index("latent", dtype, sdpa, {}, results)
    tensors = {"q": q, "k": k, "v": v, "bias": mask, "o": o}
    return entry, {f"{entry['name']}/{slot}": of for slot, of in tensors.items()}


def main():
    torch.manual_seed(7)
    cases, tensors = [], {}
    for dtype, to in TYPES.items():
        random = lambda *dims: torch.randn(*dims).to(to)
        operands = [random(SEQUENCES, HEADS, QUERIES, ELEMENTS)]
        operands += [random(SEQUENCES, KV_HEADS, KEYS, ELEMENTS) for _ in "kv"]
        tensors |= {f"operands_{dtype}/{slot}": of for slot, of in zip("qkv", operands)}
        made = [masked(name, dtype, operands) for name in MASKS]
        made += [masked(name, dtype, operands, True) for name in ["left_padding", "window"]]
        made.append(latent(dtype, {"f32": 12, "bf16": 40}[dtype]))
        for entry, own in made:
            cases.append(entry)
            tensors |= own
    here = Path(__file__).parent
    save_file({name: of.contiguous() for name, of in tensors.items()}, here / "masks.safetensors")
    lines = ",\n".join(json.dumps(of) for of in cases)
    (here / "masks.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
