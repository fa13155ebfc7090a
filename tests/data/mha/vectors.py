"""Writes cases.json: classic attention layers, and what the oracle says they give.

    python3 -m venv /tmp/mha && /tmp/mha/bin/pip install numpy==2.3.5
    /tmp/mha/bin/python tests/data/mha/vectors.py

Inputs are not stored: element i of a buffer, in memory order, is ((i + seed) * 7919 % 251) / 125 - 1
with the seeds 0, 37, 74, 111, 148 for queries, keys, values, weights and residuals. Elements of an
output that is not written are null. Every run writes the same bytes on the same machine; elsewhere
the last digits of exp may differ.
"""

import json
from itertools import permutations, product
from pathlib import Path

import numpy as np
from oracle import AXES, forward, pack, unpack, weight_layout, weights_of

BATCH, BEAMS, QUERIES, KEYS = 2, 2, 3, 4
INT_MAX = 2**31 - 1
FULL = ([0] * QUERIES, [INT_MAX] * QUERIES)
# A step sees those before it, as the document shows; the first sees none.
CAUSAL = ([0] * QUERIES, list(range(QUERIES)))
SLIDING = ([0, 1, 3], [2, 3, 4])


def buffer(seed, count):
    return ((np.arange(count) + seed) * 7919 % 251) / 125 - 1


def case(name, order=("batch", "beam", "time"), query_map="all_to_one", beams=BEAMS, heads=2,
         sizes=(4, 3, 5), projections=(2, 2, 3, 4), biases=True, scaler=0.5, windows=FULL,
         q_lengths=None, kv_lengths=None, residuals=False, step=-1):
    kv_beams = beams if query_map == "one_to_one" else 1
    q_dims = {"time": QUERIES, "batch": BATCH, "beam": beams}
    kv_dims = {"time": KEYS, "batch": BATCH, "beam": kv_beams}
    q_lengths = q_lengths or [[QUERIES] * beams] * BATCH
    kv_lengths = kv_lengths or [[KEYS] * kv_beams] * BATCH

    def vectors(seed, dims, size):
        count = dims["time"] * dims["batch"] * dims["beam"] * size
        return unpack(buffer(seed, count), dims, order, size)

    layout, count = weight_layout(heads, sizes, projections, biases)
    weights = weights_of(buffer(111, count), layout)
    q = vectors(0, q_dims, sizes[0])
    k, v = vectors(37, kv_dims, sizes[1]), vectors(74, kv_dims, sizes[2])
    added = vectors(148, q_dims, sizes[0]) if residuals else None
    out = forward(q, k, v, weights, heads, scaler, *windows, q_lengths, kv_lengths, added, step)
    flat = pack(out, order)
    return {
        "name": name, "order": order, "query_map": query_map, "beams": beams, "heads": heads,
        "sizes": sizes, "projections": projections, "biases": biases, "scaler": scaler,
        "low": windows[0], "high": windows[1], "q_lengths": sum(q_lengths, []),
        "kv_lengths": sum(kv_lengths, []), "residuals": residuals, "step": step,
        "weights": {name: {"offset": offset, "dims": dims, "strides": strides}
                    for name, (offset, dims, strides) in layout.items()},
        "output": [None if np.isnan(value) else value for value in flat],
    }


RAGGED = {"q_lengths": [[3, 1], [0, 2]], "residuals": True}
KV_LENGTHS = {"all_to_one": [[4], [2]], "one_to_one": [[4, 1], [0, 3]]}


def cases():
    for order, query_map in product(permutations(AXES), KV_LENGTHS):
        ragged = {**RAGGED, "kv_lengths": KV_LENGTHS[query_map]}
        name = f"{'_'.join(order)}_{query_map}"
        yield case(name, order, query_map, windows=SLIDING, **ragged)
        for step in (0, 1, 2):
            yield case(f"{name}_step_{step}", order, query_map, windows=CAUSAL, step=step, **ragged)
    for window, windows in {"full": FULL, "causal": CAUSAL, "sliding": SLIDING}.items():
        yield case(f"window_{window}", windows=windows)
    for scaler in (0.0, 1.0, 3.0):
        yield case(f"scaler_{scaler:g}", scaler=scaler)
    for q, k, v, o in product((True, False), repeat=4):
        inner = 2 if q and k else 4
        sizes = (4, 3 if k else inner, 5)
        projections = (inner if q else 0, inner if k else 0, 3 if v else 0, 4 if o else 0)
        has = "".join(name for name, given in zip("qkvo", (q, k, v, o)) if given)
        yield case(f"projections_{has or 'none'}", sizes=sizes, projections=projections)
    yield case("no_projections_residuals", sizes=(6, 6, 3), projections=(0, 0, 0, 0),
               residuals=True)
    yield case("no_biases", biases=False)
    yield case("no_biases_residuals", biases=False, residuals=True)
    yield case("one_beam", beams=1, query_map="one_to_one")
    yield case("three_heads", heads=3, beams=3, residuals=True)


def main():
    made = list(cases())
    lines = ",\n".join(json.dumps(case) for case in made)
    (Path(__file__).parent / "cases.json").write_text(f"[\n{lines}\n]\n")
    print(f"{len(made)} cases")


if __name__ == "__main__":
    main()
