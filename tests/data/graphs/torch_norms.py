"""Writes norms.json and norms.safetensors: gradients of norms of long rows, as torch computes them in
double precision.

    pip install torch safetensors numpy
    python3 tests/data/graphs/torch_norms.py

Inputs are not written: `hashed` makes them. Every 13th column of a result is written, in f32. Written
with torch 2.15.0 on a CPU.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional

sys.path.append(str(Path(__file__).parents[1]))
import hashed

ROWS = 5
EPSILON = 1e-3
STEP = 13  # between the columns that are written

torch.set_default_dtype(torch.float64)


def gradients(kind, columns):
    """Gradients of a norm of rows, by name."""
    x = hashed.values("x", (ROWS, columns)).requires_grad_()
    scale = hashed.values("scale", (1, columns)).requires_grad_()
    bias = torch.zeros(1, columns, requires_grad=True)
    if kind == "layer":
        y = functional.layer_norm(x, (columns,), scale[0], bias[0], EPSILON)
    else:
        y = functional.rms_norm(x, (columns,), scale[0], EPSILON)
    y.backward(hashed.values("dy", (ROWS, columns)))
    results = {"dx": x.grad, "dscale": scale.grad, "dbias": bias.grad}
    return {name: result for name, result in results.items() if result is not None}


def main():
    cases, results = [], {}
    for kind in ("layer", "rms"):
        for columns in (8200, 12288, 16384):
            name = f"{kind}_{columns}"
            cases.append({"name": name, "kind": kind, "rows": ROWS, "columns": columns})
            for result, values in gradients(kind, columns).items():
                written = values[:, ::STEP].float().contiguous()
                results[f"{name}/{result}"] = written
    folder = Path(__file__).parent
    folder.joinpath("norms.json").write_text(json.dumps(cases, indent=1) + "\n")
    save_file(results, folder / "norms.safetensors")


main()
