"""Rules of ONNX's attention node: what `extract.py` makes of it.

Operands of three dimensions keep their heads inside of positions, by strides. Keys and values of the
past stand before the new ones. Causal attention goes on from the past: what a query may attend to is
an interval of keys. Later versions, 1.23 among them, have windows, let the last query of a sequence
with a length meet its last key, and cap scores before the bias, where 1.21 caps them behind it.
"""

import numpy as np

NAMES = {np.dtype("f4"): "f32", np.dtype("f2"): "f16"}


def by_heads(array, heads):
    """An array as [batch, head, position, element], and the strides of heads inside of positions."""
    if array.ndim == 4:
        return array, None
    batch, positions, elements = array.shape
    size = elements // heads
    split = array.reshape(batch, positions, heads, size).transpose(0, 2, 1, 3)
    return split, [positions * elements, size, elements, 1]


def convert(node, attributes, read, later=False):
    """The problem of a node, its arrays by name, and the largest value that NumPy rounds."""
    given = {slot: read(slot) for slot, name in enumerate(node.input) if name}
    heads_q, heads_kv = attributes.get("q_num_heads", 0), attributes.get("kv_num_heads", 0)
    tensors, arrays = [], {}
    operation = {"attention": "f32"}

    def put(slot, array, dtype, strides=None):
        tensor = {"name": slot, "dtype": dtype, "dims": list(array.shape)}
        tensors.append(tensor | ({"strides": strides} if strides else {}))
        arrays[slot] = array
        operation[slot] = slot

    q, strides = by_heads(given[0], heads_q)
    dtype = NAMES[q.dtype]
    put("q", q, dtype, strides)
    past = 0
    for slot, name in [(1, "k"), (2, "v")]:
        array, strides = by_heads(given[slot], heads_kv)
        if slot + 3 in given:
            past = given[slot + 3].shape[2]
            array, strides = np.concatenate([given[slot + 3], array], axis=2), None
        put(name, array, dtype, strides)
    queries, keys = q.shape[2], arrays["k"].shape[2]
    if 3 in given:
        mask = given[3].reshape([1] * (4 - given[3].ndim) + list(given[3].shape))
        is_mask = mask.dtype == bool
        pad = [(0, 0)] * 3 + [(0, keys - mask.shape[3])]
        mask = np.pad(mask, pad, constant_values=False if is_mask else -np.inf)
        put("mask" if is_mask else "bias", mask, "bool" if is_mask else dtype)
    if 6 in given:
        lengths = given[6].astype("i4").reshape(-1, 1, 1, 1)
        put("key_lengths", lengths, "i32")
    left, right = (attributes.get(f"{side}_window_size", -1) for side in ("left", "right"))
    right = 0 if attributes.get("is_causal", 0) else right
    if left >= 0 or right >= 0:
        own = (np.arange(queries, dtype="i4") + past).reshape(1, 1, queries, 1)
        own = own + lengths - queries if later and 6 in given else own
        put("key_begin", own - left if left >= 0 else np.zeros_like(own), "i32")
        put("key_end", own + right + 1 if right >= 0 else np.full_like(own, keys), "i32")
    if "scale" in attributes:
        operation["scale"] = attributes["scale"]
    if attributes.get("softcap", 0.0):
        operation["softcap"] = attributes["softcap"]
        operation |= {} if later else {"softcap_last": True}
    result, strides = by_heads(read("output"), heads_q)
    put("o", result, dtype, strides)
    return {"graph": {"tensors": tensors, "operations": [operation]}}, arrays, magnitude(arrays)


def magnitude(arrays):
    """What NumPy's errors are relative to: it computes scores, weights and sums in the type of the
    operands, an error of a score moves a weight by as large a part of it, and four units of the
    magnitude stand for the errors of one function (`onnx_expected` in `tests/it/onnx.rs`)."""
    q, k, v = (arrays[slot].astype("f8") for slot in "qkv")
    k = np.repeat(np.abs(k), q.shape[1] // k.shape[1], axis=1)
    scores = np.einsum("bhqd,bhkd->bhqk", np.abs(q), k) / np.sqrt(q.shape[3])
    bias = np.abs(arrays["bias"].astype("f8")) if "bias" in arrays else np.zeros(1)
    score = scores.max() + bias[np.isfinite(bias)].max(initial=0.0)
    roundings = 2 * (q.shape[3] + 4) * score + k.shape[2] + 8
    return float(np.abs(v).max() * roundings / 4)
