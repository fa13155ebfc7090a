"""Writes products.json and products.safetensors: products with bias and GELU, and bare ones, as torch
computes them in double precision.

    pip install torch safetensors numpy
    python3 tests/data/graphs/torch_products.py

Inputs are not written: `hashed` makes them. Results are written in f32. Written with torch 2.15.0 on a
CPU.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional

sys.path.append(str(Path(__file__).parents[1]))
import hashed

# Rows, columns, K: of whole tiles, of one row, of K that is no whole MMA, of more than one tile, of odd
# rows, of a vector on either side.
SHAPES = [(64, 64, 64), (1, 72, 136), (33, 40, 8), (17, 24, 264), (130, 136, 48), (66, 75, 72), (1, 65, 130), (129, 1, 77)]

torch.set_default_dtype(torch.float64)


def main():
    cases, results = [], {}
    for rows, columns, k in SHAPES:
        for fused in (False, True):
            name = f"{'gelu' if fused else 'bare'}_{rows}_{columns}_{k}"
            cases.append({"name": name, "fused": fused, "shape": [rows, columns, k]})
            a = hashed.values("a", (1, rows, k))
            b = hashed.values("b", (1, k, columns), 0.25)
            c = a @ b
            if fused:
                c = functional.gelu(c + hashed.values("bias", (1, 1, columns)))
            results[f"{name}/c"] = c.float().contiguous()
    folder = Path(__file__).parent
    folder.joinpath("products.json").write_text(json.dumps(cases, indent=1) + "\n")
    save_file(results, folder / "products.safetensors")


main()
