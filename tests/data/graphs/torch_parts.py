"""Writes parts.json and parts.safetensors: graphs that run as several parts, products behind long
prologues and convolutions one behind the other, as torch computes them in double precision.

    pip install torch safetensors numpy
    python3 tests/data/graphs/torch_parts.py

Inputs are not written: `hashed` makes them, of a name and a scale. What lies between operations is
rounded to f16, as in the problem. Of large results each so many-th row is written, in f32. Written
with torch 2.15.0 on a CPU.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional
from torch.nn.grad import conv2d_input, conv2d_weight

sys.path.append(str(Path(__file__).parents[1]))
import hashed

torch.set_default_dtype(torch.float64)

FUNCTIONS = {
    "relu_fwd": torch.relu,
    "gelu_fwd": functional.gelu,
    "tanh_fwd": torch.tanh,
    "swish_fwd": functional.silu,
    "identity": lambda x: x,
    "add": torch.add,
    "mul": torch.mul,
    "relu_bwd": lambda x, dy: torch.where(x > 0, dy, 0.0),
}


def half(x):
    """Rounded once: torch rounds to f32 first."""
    return torch.from_numpy(x.numpy().astype("float16").astype("float64"))


class Case:
    """A graph, and what torch computes of it."""

    def __init__(self, name, every=1, last=False):
        self.name, self.every, self.last = name, every, last
        self.tensors, self.operations, self.scales, self.results = [], [], {}, {}

    def _lay(self, name, dims, dtype, order=None, **options):
        if self.last and len(dims) > 3:
            order = [1, *range(len(dims) - 1, 1, -1), 0]
        tensor = {"name": name, "dtype": dtype, "dims": list(dims), **options}
        if order:
            strides, step = {}, 1
            for axis in order:
                strides[axis] = step
                step *= dims[axis]
            tensor["strides"] = [strides[axis] for axis in range(len(dims))]
        self.tensors.append(tensor)

    def input(self, name, dims, scale=1.0, dtype="f16", order=None):
        """`order`: the axes from the innermost on."""
        self._lay(name, dims, dtype, order)
        self.scales[name] = scale
        return name, hashed.values(name, dims, scale)

    def _result(self, operation, key, x, name, dtype="f16"):
        """Something virtual, or the output that has a name."""
        self.operations.append(operation)
        if name:
            self._lay(name, x.shape, dtype)
            self.results[f"{self.name}/{name}"] = x[:: self.every].float().contiguous()
        else:
            name = f"t{len(self.operations)}"
            packed = {"name": name, "dtype": dtype, "dims": list(x.shape), "virtual": True}
            self.tensors.append(packed)
        operation[key] = name
        return name, half(x)

    def pointwise(self, mode, *operands, name=None, alpha=1.0):
        operation = {"pointwise": mode, "inputs": [key for key, _ in operands]}
        values = [of for _, of in operands]
        if alpha != 1.0:
            operation["alpha1"] = alpha
            values[0] = values[0] * alpha
        return self._result(operation, "output", FUNCTIONS[mode](*values), name)

    def functions(self, x, count):
        """So many pairs of functions, which keep values apart."""
        for _ in range(count):
            x = self.pointwise("tanh_fwd", self.pointwise("gelu_fwd", x), alpha=2.0)
        return x

    def matmul(self, a, b, name=None):
        operation = {"matmul": "f32", "a": a[0], "b": b[0]}
        return self._result(operation, "c", a[1] @ b[1], name)

    def convolve(self, kind, given, value, stride, padding, name=None):
        window = {"filter_strides": [stride] * 2, "pre_paddings": [padding] * 2}
        window["post_paddings"] = window["pre_paddings"]
        names = {key: of[0] for key, of in given.items()}
        key = {"forward": "y", "backward_data": "dx", "backward_filter": "dw"}[kind]
        return self._result({f"convolution_{kind}": "f32", **window, **names}, key, value, name)

    def forward(self, x, w, stride=1, padding=0, name=None):
        y = functional.conv2d(x[1], w[1], stride=stride, padding=padding)
        return self.convolve("forward", {"x": x, "w": w}, y, stride, padding, name)

    def data(self, w, dy, shape, stride=1, padding=0, name=None):
        dx = conv2d_input(shape, w[1], dy[1], stride=stride, padding=padding)
        return self.convolve("backward_data", {"w": w, "dy": dy}, dx, stride, padding, name)

    def filter(self, x, dy, shape, stride=1, padding=0, name=None):
        dw = conv2d_weight(x[1], shape, dy[1], stride=stride, padding=padding)
        return self.convolve("backward_filter", {"x": x, "dy": dy}, dw, stride, padding, name)

    def written(self):
        graph = {"tensors": self.tensors, "operations": self.operations}
        own = {"name": self.name, "every": self.every, "scales": self.scales}
        return own | {"problem": {"graph": graph}}


def products():
    """Long prologues, which leave small products, of A, of B and of both; and a short one, which
    stays."""
    case = Case("functions_of_a", every=8)
    a, b = case.input("a", (65, 72), 2.0), case.input("b", (72, 2047), 0.25)
    case.matmul(case.functions(a, 20), b, "c")
    yield case

    case = Case("functions_of_a_transposed", every=8)
    a, b = case.input("a", (65, 72), 2.0, order=(0, 1)), case.input("b", (72, 2048), 0.25)
    case.matmul(case.functions(a, 20), b, "c")
    yield case

    case = Case("weights_of_8_bits", every=128)
    a, w = case.input("a", (2047, 72)), case.input("w", (72, 72), 128, dtype="i8")
    scales = case.input("scales", (1, 72), 1 / 32, dtype="f32")
    case.matmul(a, case.functions(case.pointwise("mul", w, scales), 20), "c")
    yield case

    case = Case("both_in_f32", every=16)
    a, b = case.input("a", (520, 64), dtype="f32"), case.input("b", (64, 520), dtype="f32")
    a, b = (case.functions(case.pointwise("identity", of), 16) for of in (a, b))
    case.matmul(a, b, "c")
    yield case

    case = Case("swiglu", every=16)
    gate, up = case.input("gate", (260, 64), 4.0), case.input("up", (260, 64))
    w = case.input("w", (64, 136), 0.25)
    case.matmul(case.pointwise("mul", case.pointwise("swish_fwd", gate), up), w, "c")
    yield case

    case = Case("mlp", every=16)
    hidden = case.matmul(case.input("x", (130, 64)), case.input("w0", (64, 256), 0.5))
    hidden = case.pointwise("add", hidden, case.input("bias", (1, 256)))
    case.matmul(case.functions(hidden, 20), case.input("w1", (256, 72), 0.25), "c")
    yield case


def convolutions(last):
    where = "last" if last else "first"
    case = Case(f"residual_block_{where}", last=last)
    x = case.input("x", (2, 16, 7, 7))
    weights = [case.input("w0", (24, 16, 3, 3), 0.25), case.input("w1", (16, 24, 1, 1), 0.5)]
    scale, shift = (case.input(key, (1, 16, 1, 1), dtype="f32") for key in ("scale", "shift"))
    y = case.pointwise("relu_fwd", case.pointwise("add", case.pointwise("mul", x, scale), shift))
    y = case.pointwise("relu_fwd", case.forward(y, weights[0], padding=1))
    case.pointwise("add", case.forward(y, weights[1]), x, name="y")
    yield case

    case = Case(f"downsampling_{where}", last=last)
    x = case.pointwise("gelu_fwd", case.input("x", (2, 8, 9, 9), 4.0))
    y = case.pointwise("gelu_fwd", case.forward(x, case.input("w0", (16, 8, 3, 3), 0.25), 2, 1))
    case.forward(y, case.input("w1", (32, 16, 3, 3), 0.25), 2, 1, name="y")
    yield case

    case = Case(f"gradients_{where}", last=last)
    x, hidden = case.input("x", (2, 8, 7, 7)), case.input("hidden", (2, 16, 7, 7))
    dy = case.input("dy", (2, 24, 4, 4))
    w0, w1 = case.input("w0", (16, 8, 3, 3), 0.25), case.input("w1", (24, 16, 3, 3), 0.25)
    dhidden = case.pointwise("relu_bwd", hidden, case.data(w1, dy, (2, 16, 7, 7), 2, 1))
    case.filter(case.pointwise("relu_fwd", hidden), dy, (24, 16, 3, 3), 2, 1, name="dw1")
    case.filter(x, dhidden, (16, 8, 3, 3), 1, 1, name="dw0")
    case.data(w0, dhidden, (2, 8, 7, 7), 1, 1, name="dx")
    yield case


def main():
    cases = [*products(), *convolutions(True), *convolutions(False)]
    here = Path(__file__).parent
    lines = ",\n".join(json.dumps(case.written()) for case in cases)
    (here / "parts.json").write_text(f"[\n{lines}\n]\n")
    results = {key: of for case in cases for key, of in case.results.items()}
    save_file(results, here / "parts.safetensors")
    print(f"{len(cases)} cases, torch {torch.__version__}")


if __name__ == "__main__":
    main()
