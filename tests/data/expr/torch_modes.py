"""Writes modes.json: gradients of pointwise modes by torch's autograd, in double precision.

    pip install torch
    python3 tests/data/expr/torch_modes.py

Each row is a mode, its attributes, its operands, the gradient of its result, and those of its
operands; edges are where ours are torch's conventions. Written with torch 2.15.0 on a CPU.
"""

import json
import math
from pathlib import Path

import torch
from torch.nn import functional as F

X = [-2.5, -0.75, 0.0, 0.3, 1.0, 2.0, 6.5]
POSITIVE = [0.2, 1.0, 3.5]
PAIRS = [(0.7, 1.9), (-1.3, 0.4), (2.0, -3.0), (1.5, 1.5), (-2.0, -2.0), (0.0, 2.0)]

ONE = {
    "abs": torch.abs,
    "ceil": torch.ceil,
    "cos": torch.cos,
    "exp": torch.exp,
    "floor": torch.floor,
    "neg": torch.neg,
    "sin": torch.sin,
    "tan": torch.tan,
    "erf": torch.erf,
    "tanh_fwd": torch.tanh,
    "sigmoid_fwd": torch.sigmoid,
    "gelu_fwd": F.gelu,
    "gelu_approx_tanh_fwd": lambda x: F.gelu(x, approximate="tanh"),
    "relu_fwd": F.relu,
    "swish_fwd": F.silu,
    "elu_fwd": F.elu,
    "softplus_fwd": F.softplus,
}
OF_POSITIVE = {"log": torch.log, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt}
TWO = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "max": torch.maximum,
    "min": torch.minimum,
    "mod": torch.fmod,
    "add_square": lambda x, b: x + b * b,
}
# Mode, its attributes by name, and what torch computes.
WITH = [
    ("relu_fwd", {"upper": 6.0}, F.relu6),
    ("relu_fwd", {"slope": 0.1}, lambda x: F.leaky_relu(x, 0.1)),
    ("relu_fwd", {"lower": -1.0, "upper": 1.0}, F.hardtanh),
    ("elu_fwd", {"shape": 0.5}, lambda x: F.elu(x, 0.5)),
    ("softplus_fwd", {"shape": 2.0}, lambda x: F.softplus(x, 2.0, threshold=1e9)),
    ("swish_fwd", {"shape": 1.5}, lambda x: x * torch.sigmoid(1.5 * x)),
]
SECOND = {
    "tanh_bwd": torch.tanh,
    "sigmoid_bwd": torch.sigmoid,
    "elu_bwd": F.elu,
    "gelu_bwd": F.gelu,
    "softplus_bwd": F.softplus,
    "swish_bwd": F.silu,
    "gelu_approx_tanh_bwd": lambda x: F.gelu(x, approximate="tanh"),
}


def row(mode, attributes, of, operands):
    """The gradients of one element, for one of its result."""
    given = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in operands]
    result, dy = of(*given), 0.75
    gradients = [torch.zeros(())] * len(given)
    if result.requires_grad:
        gradients = torch.autograd.grad(result, given, torch.tensor(dy, dtype=torch.float64))
    shown = [value.item() for value in gradients]
    shown = [value if math.isfinite(value) else repr(value) for value in shown]
    return {"mode": mode, "with": attributes, "x": list(operands), "dy": dy, "gradients": shown}


def first(of):
    """The gradient of an activation as a function of its operand and that of its result."""
    return lambda x, dy: torch.autograd.grad(of(x), x, dy, create_graph=True)[0]


def rows():
    yield from (row(mode, {}, of, [x]) for mode, of in ONE.items() for x in X)
    yield from (row(mode, {}, of, [x]) for mode, of in OF_POSITIVE.items() for x in POSITIVE)
    yield from (row(mode, {}, of, pair) for mode, of in TWO.items() for pair in PAIRS)
    yield from (row("pow", {}, torch.pow, pair) for pair in [(0.7, 1.9), (3.0, -2.0), (0.0, 2.0)])
    yield row("sqrt", {}, torch.sqrt, [0.0])
    smooth = [x for x in X if x != 0.0]
    for mode, given, of in WITH:
        # ELU has an edge at 0, which torch counts below it and the document's definition above.
        edges = smooth if mode == "elu_fwd" else [*X, 1.0, 6.0, -1.0]
        yield from (row(mode, given, of, [x]) for x in edges)
    yield from (row(mode, {}, first(of), [x, 1.3]) for mode, of in SECOND.items() for x in smooth)


def main():
    lines = [json.dumps(of) for of in rows()]
    path = Path(__file__).parent / "modes.json"
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{len(lines)} rows of torch")


if __name__ == "__main__":
    main()
