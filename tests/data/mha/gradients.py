"""Writes gradients.json: gradients of classic attention layers, by torch's automatic differentiation.

    python3 -m venv /tmp/mha && /tmp/mha/bin/pip install numpy==2.4.6 torch==2.15.0
    /tmp/mha/bin/python tests/data/mha/gradients.py

The layer is written out below in float64, beside `oracle.py`, which its outputs without dropout are
compared with. Inputs are those of `vectors.py`; the gradient of the outputs has seed 185. Dropout
masks are drawn here by Philox4x32-10. Elements beyond the lengths of sequences are no part of what
is differentiated: gradients are 0 there.
"""

import json
from itertools import permutations, product
from pathlib import Path

import numpy as np
import torch
from oracle import AXES, forward, pack, unpack, weight_layout, weights_of
from vectors import BATCH, FULL, KEYS, QUERIES, SLIDING, buffer

F64 = torch.float64
# What a case drops, of the softmax and of the outputs: probability, seed.
DROPS = [[0.25, 1234567890123], [0.5, -7]]
NONE = [[0.0, 0], [0.0, 0]]


def words(seed, offset, subsequence):
    """Four words of Philox4x32-10 (Salmon et al. 2011)."""
    low, mask = 0xFFFFFFFF, 2**64 - 1
    split = lambda value: [value & low, (value & mask) >> 32]
    counter, key = split(offset) + split(subsequence), split(seed)
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & low,
                   (a >> 32) ^ counter[3] ^ key[1], a & low]
        key = [(key[0] + 0x9E3779B9) & low, (key[1] + 0xBB67AE85) & low]
    return counter


def mask(drop, offset, shape, row):
    """0 or 1 / (1 - p) for each element; rows of the last axis are `row` numbers long."""
    probability, seed = drop
    if not probability:
        return np.ones(shape)
    made = np.zeros(shape)
    for at in np.ndindex(shape):
        outer = int(np.ravel_multi_index(at[:-1], shape[:-1]))
        position = outer * row + at[-1]
        word = words(seed, offset, position // 4)[position % 4]
        made[at] = (word < (1 - probability) * 2**32) / (1 - probability)
    return made


def layer(q, k, v, w, heads, scaler, low, high, q_lengths, kv_lengths, drops):
    """[batch, time, size] of the output, without residuals, of one beam."""
    batch, steps, _ = q.shape
    keys = k.shape[1]

    def projected(a, name):
        if "w_" + name not in w:
            return a[:, None].expand(batch, heads, *a.shape[1:])
        made = torch.einsum("hps,nts->nhtp", w["w_" + name], a)
        return made + w["b_" + name][:, :, 0][None, :, None] if "b_" + name in w else made

    queries, of_keys, values = (projected(a, name) for a, name in ((q, "q"), (k, "k"), (v, "v")))
    key, step = np.arange(keys), np.arange(steps)
    seen = (key >= np.array(low)[:, None]) & (key < np.array(high)[:, None])
    seen = seen[None] & (key < np.array(kv_lengths)[:, None, None])
    seen = torch.tensor(seen & (step[:, None] < np.array(q_lengths)[:, None, None]))[:, None]
    scores = scaler * queries @ of_keys.transpose(2, 3)
    scores = torch.where(seen, scores, torch.tensor(-1e300, dtype=F64))
    weights = torch.where(seen, torch.softmax(scores, 3), 0.0)
    # Rows of keys are whole subsequences.
    kept = mask(drops[0], 0, weights.shape, -(-keys // 4) * 4)
    attended = (weights * torch.tensor(kept)) @ values
    out = attended.permute(0, 2, 1, 3).reshape(batch, steps, -1)
    if "w_o" in w:
        out = torch.einsum("hov,nhtv->nto", w["w_o"], attended)
        out = out + w["b_o"][0, :, 0] if "b_o" in w else out
    return out * torch.tensor(mask(drops[1], 1, out.shape, out.shape[2]))


def case(name, order=("batch", "beam", "time"), heads=2, sizes=(4, 3, 5),
         projections=(2, 2, 3, 4), biases=True, scaler=0.5, windows=FULL, q_lengths=None,
         kv_lengths=None, residuals=False, drops=NONE):
    q_lengths, kv_lengths = q_lengths or [QUERIES] * BATCH, kv_lengths or [KEYS] * BATCH
    q_dims = {"time": QUERIES, "batch": BATCH, "beam": 1}
    kv_dims = {"time": KEYS, "batch": BATCH, "beam": 1}

    def vectors(seed, dims, size):
        count = dims["time"] * dims["batch"] * size
        return unpack(buffer(seed, count), dims, order, size)

    layout, count = weight_layout(heads, sizes, projections, biases)
    weights = weights_of(buffer(111, count), layout)
    inputs = [vectors(0, q_dims, sizes[0]), vectors(37, kv_dims, sizes[1]),
              vectors(74, kv_dims, sizes[2])]
    added = vectors(148, q_dims, sizes[0]) if residuals else None
    leaf = lambda array: torch.tensor(np.array(array), dtype=F64, requires_grad=True)
    leaves, parameters = [leaf(a[:, 0]) for a in inputs], {n: leaf(a) for n, a in weights.items()}
    out = layer(*leaves, parameters, heads, scaler, *windows, q_lengths, kv_lengths, drops)
    gradient = vectors(185, q_dims, out.shape[2])[:, 0].copy()
    for n, length in enumerate(q_lengths):
        gradient[n, length:] = 0
    output = out.detach().numpy()[:, None]
    output = output if added is None else output + added
    if drops is NONE:
        known = forward(*inputs, weights, heads, scaler, *windows, [[n] for n in q_lengths],
                        [[n] for n in kv_lengths], added, -1)
        assert np.abs(output - known).max() < 1e-12, name
    (out * torch.tensor(gradient)).sum().backward()
    of = lambda tensor: np.zeros(tensor.shape) if tensor.grad is None else tensor.grad.numpy()
    by_weight = np.zeros(count)
    for weight, (offset, dims, strides) in layout.items():
        at = offset + sum(stride * axis for stride, axis in zip(strides, np.indices(dims)))
        by_weight[at] = of(parameters[weight])
    return {
        "name": name, "order": order, "query_map": "all_to_one", "beams": 1, "heads": heads,
        "sizes": sizes, "projections": projections, "biases": biases, "scaler": scaler,
        "low": windows[0], "high": windows[1], "q_lengths": q_lengths, "kv_lengths": kv_lengths,
        "residuals": residuals, "step": -1, "weights": {}, "drops": drops,
        "output": list(pack(output, order)),
        "gradients": {
            "query_gradients": list(pack(of(leaves[0])[:, None], order)),
            "key_gradients": list(pack(of(leaves[1])[:, None], order)),
            "value_gradients": list(pack(of(leaves[2])[:, None], order)),
            "weight_gradients": list(by_weight),
        },
    }


def cases():
    ragged = {"q_lengths": [3, 1], "kv_lengths": [4, 2], "windows": SLIDING}
    for at, order in enumerate(permutations(AXES)):
        drops = DROPS if at % 2 else NONE
        yield case("_".join(order), order, residuals=True, drops=drops, **ragged)
    for q, k, v, o in product((True, False), repeat=4):
        inner = 2 if q and k else 4
        sizes = (4, 3 if k else inner, 5)
        projections = (inner if q else 0, inner if k else 0, 3 if v else 0, 4 if o else 0)
        has = "".join(name for name, given in zip("qkvo", (q, k, v, o)) if given)
        yield case(f"projections_{has or 'none'}", ("time", "batch", "beam"), sizes=sizes,
                   projections=projections, q_lengths=[2, 3], drops=[DROPS[0], NONE[1]])
    yield case("no_projections_residuals", sizes=(6, 6, 3), projections=(0, 0, 0, 0),
               residuals=True, drops=[NONE[0], DROPS[1]])
    yield case("empty_sequences", q_lengths=[0, 3], kv_lengths=[3, 0])
    yield case("empty_windows", windows=([0] * QUERIES, [0, 1, 2]), biases=False)
    yield case("no_sequences", q_lengths=[0, 0], kv_lengths=[0, 0])
    yield case("three_heads", heads=3, scaler=1.0, residuals=True, drops=DROPS)


def main():
    made = list(cases())
    lines = ",\n".join(json.dumps(case) for case in made)
    (Path(__file__).parent / "gradients.json").write_text(f"[\n{lines}\n]\n")
    print(f"{len(made)} cases")


if __name__ == "__main__":
    main()
