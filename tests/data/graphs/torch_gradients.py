"""Writes gradients.json and gradients.safetensors: graphs as Kiln problems, with the gradients that
torch's autograd gives for them.

    pip install torch safetensors
    python3 tests/data/graphs/torch_gradients.py

A problem is run operation by operation with torch's functions, in double precision. Tensors are
named `case/tensor`; `d_y` is a given gradient of the output `y`, `d_x` that of the input `x`.
Written with torch 2.15.0 on a CPU.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional as F

POINTWISE = {
    "add": lambda x, b: x + b, "sub": lambda x, b: x - b, "mul": lambda x, b: x * b,
    "div": lambda x, b: x / b, "add_square": lambda x, b: x + b * b, "pow": torch.pow,
    "max": torch.maximum, "min": torch.minimum, "mod": torch.fmod, "abs": torch.abs,
    "neg": torch.neg, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "exp": torch.exp,
    "log": torch.log, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "erf": torch.erf,
    "identity": lambda x: x * 1.0, "relu_fwd": F.relu, "tanh_fwd": torch.tanh,
    "sigmoid_fwd": torch.sigmoid, "elu_fwd": F.elu, "gelu_fwd": F.gelu,
    "softplus_fwd": F.softplus, "swish_fwd": F.silu,
    "gelu_approx_tanh_fwd": lambda x: F.gelu(x, approximate="tanh"),
    "binary_select": lambda x, b, t: torch.where(t != 0, x, b),
}


def reduced(kind, x, y):
    axes = [at for at, (own, to) in enumerate(zip(x.shape, y)) if own != to]
    functions = {
        "add": lambda: x.sum(axes, True), "avg": lambda: x.mean(axes, True),
        "max": lambda: x.amax(axes, True), "min": lambda: x.amin(axes, True),
        "amax": lambda: x.abs().amax(axes, True), "norm1": lambda: x.abs().sum(axes, True),
        "norm2": lambda: (x * x).sum(axes, True).sqrt(),
    }
    return functions[kind]()


def normed(mode, groups, x, scale, bias, epsilon):
    shape = x.shape
    if mode in ("layer", "rms"):
        axes = [at for at in range(x.dim()) if scale.shape[at] != 1]
    elif mode == "batch":
        axes = [0, *range(2, x.dim())]
    else:
        count = groups or shape[1]
        x = x.reshape(shape[0], count, -1)
        axes = [2]
    mean = 0 if mode == "rms" else x.mean(axes, True)
    variance = ((x - mean) ** 2).mean(axes, True)
    y = ((x - mean) * torch.rsqrt(variance + epsilon)).reshape(shape) * scale
    return y if bias is None else y + bias


def run(operation, values, dims):
    """The result of one operation of a problem."""
    get = lambda key: values[operation[key]] if key in operation else None
    if "pointwise" in operation:
        operands = [values[name] for name in operation["inputs"]]
        return operation["output"], POINTWISE[operation["pointwise"]](*operands)
    if "matmul" in operation:
        return operation["c"], get("a") @ get("b")
    if "reduction" in operation:
        return operation["y"], reduced(operation["reduction"], get("x"), dims[operation["y"]])
    if "norm_forward" in operation:
        mode, groups = operation["norm_forward"], operation.get("groups")
        return operation["y"], normed(mode, groups, get("x"), get("scale"), get("bias"), get("epsilon"))
    if "convolution_forward" in operation:
        before, behind = operation["pre_paddings"], operation["post_paddings"]
        pads = [pad for both in reversed(list(zip(before, behind))) for pad in both]
        x, w = F.pad(get("x"), pads), get("w")
        y = F.conv2d(x, w, None, operation["filter_strides"], 0, operation["dilations"], x.shape[1] // w.shape[1])
        return operation["y"], y
    if "slice" in operation:
        x, begin = get("x"), operation["slice"]
        end = operation.get("end", list(x.shape))
        step = operation.get("stride", [1] * x.dim())
        return operation["y"], x[tuple(slice(*of) for of in zip(begin, end, step))]
    if "transpose" in operation:
        return operation["y"], get("x").permute(operation["transpose"])
    if "reshape" in operation:
        return operation["y"], get("x").reshape(operation["reshape"])
    if "ctc_loss" in operation:
        logs, blank = F.log_softmax(get("x"), 2), operation["blank"]
        own = (get(key).long() for key in ("labels", "input_lengths", "label_lengths"))
        zero = operation.get("infinite") == "zero"
        return operation["loss"], F.ctc_loss(logs, *own, blank, "none", zero)
    return operation["y"], torch.cat([values[name] for name in operation["x"]], operation["concatenate"])


class Graph:
    """A problem that grows by one operation after another."""

    def __init__(self):
        self.tensors, self.operations, self.made = [], [], 0

    def input(self, name, *dims, dtype="f64", low=None):
        self.tensors.append(dict(name=name, dtype=dtype, dims=list(dims)))
        self.tensors[-1]["low"] = low
        return name

    def integers(self, name, values):
        values = torch.tensor(values, dtype=torch.int32)
        self.tensors.append(dict(name=name, dtype="i32", dims=list(values.shape), values=values))
        return name

    def dims(self, name):
        return next(of["dims"] for of in self.tensors if of["name"] == name)

    def result(self, dims):
        self.made += 1
        self.tensors.append(dict(name=f"t{self.made}", dtype="f64", dims=list(dims), virtual=True))
        return f"t{self.made}"

    def p(self, mode, *inputs):
        dims = [max(of) for of in zip(*(self.dims(name) for name in inputs))]
        y = self.result(dims)
        self.operations.append(dict(pointwise=mode, inputs=list(inputs), output=y, math="f64"))
        return y

    def matmul(self, a, b):
        batch = [max(of) for of in zip(self.dims(a)[:-2], self.dims(b)[:-2])]
        c = self.result(batch + [self.dims(a)[-2], self.dims(b)[-1]])
        self.operations.append(dict(matmul="f64", a=a, b=b, c=c))
        return c

    def reduce(self, kind, x, *axes):
        y = self.result([1 if at in axes else of for at, of in enumerate(self.dims(x))])
        self.operations.append(dict(reduction=kind, x=x, y=y, math="f64"))
        return y

    def norm(self, mode, x, scale, bias=None, groups=None):
        epsilon = self.input("epsilon", *[1] * len(self.dims(x)), low=0.01)
        y = self.result(self.dims(x))
        own = dict(norm_forward=mode, phase="training", math="f64", x=x, scale=scale, epsilon=epsilon, y=y)
        own |= dict(bias=bias) if bias else {}
        self.operations.append(own | (dict(groups=groups) if groups else {}))
        return y

    def conv(self, x, w, stride=(1, 1), pre=(0, 0), post=(0, 0), dilation=(1, 1)):
        own = dict(convolution_forward="f64", filter_strides=list(stride), dilations=list(dilation),
                   pre_paddings=list(pre), post_paddings=list(post), x=x, w=w)
        image, taps = self.dims(x), self.dims(w)
        out = [(image[2 + at] + pre[at] + post[at] - dilation[at] * (taps[2 + at] - 1) - 1) // stride[at] + 1
               for at in range(2)]
        own["y"] = self.result([image[0], taps[0], *out])
        self.operations.append(own)
        return own["y"]

    def ctc(self, x, labels, steps, blank=0, **options):
        most = max(len(row) for row in labels)
        rows = [row + [blank] * (most - len(row)) for row in labels]
        loss = self.result([len(labels)])
        self.operations.append(dict(
            ctc_loss="logits", label_length_max=most, blank=blank, math="f64", **options, x=x,
            labels=self.integers("labels", rows), loss=loss,
            label_lengths=self.integers("label_lengths", [len(row) for row in labels]),
            input_lengths=self.integers("input_lengths", steps)))
        return loss

    def slice(self, x, begin, end=None, stride=None):
        end, stride = end or self.dims(x), stride or [1] * len(begin)
        y = self.result([-(-(b - a) // s) for a, b, s in zip(begin, end, stride)])
        self.operations.append(dict(slice=begin, end=end, stride=stride, x=x, y=y))
        return y

    def transpose(self, x, *axes):
        y = self.result([self.dims(x)[axis] for axis in axes])
        self.operations.append(dict(transpose=list(axes), x=x, y=y))
        return y

    def reshape(self, x, *dims):
        y = self.result(dims)
        self.operations.append(dict(reshape=list(dims), x=x, y=y))
        return y

    def cat(self, axis, *xs):
        dims = list(self.dims(xs[0]))
        dims[axis] = sum(self.dims(x)[axis] for x in xs)
        y = self.result(dims)
        self.operations.append(dict(concatenate=axis, x=list(xs), y=y))
        return y

    def softmax(self, x):
        last = len(self.dims(x)) - 1
        power = self.p("exp", self.p("sub", x, self.reduce("max", x, last)))
        return self.p("div", power, self.reduce("add", power, last))

    def rope(self, x, cos, sin, first, second):
        first, second = self.slice(x, *first), self.slice(x, *second)
        turned = self.p("sub", self.p("mul", first, cos), self.p("mul", second, sin))
        other = self.p("add", self.p("mul", second, cos), self.p("mul", first, sin))
        return turned, other


def linear(g, x, w, *dims, bias=True):
    y = g.matmul(x, g.input(w, *dims))
    return g.p("add", y, g.input(w + "_bias", 1, 1, dims[-1])) if bias else y


def mlp(g):
    x = g.input("x", 2, 5, 6)
    return linear(g, g.p("gelu_fwd", linear(g, x, "w1", 1, 6, 9)), "w2", 1, 9, 6)


def residual(g):
    x = g.input("x", 2, 5, 6)
    return g.p("add", x, linear(g, g.p("relu_fwd", linear(g, x, "w1", 1, 6, 8)), "w2", 1, 8, 6))


def swiglu(g):
    gates = linear(g, g.input("x", 1, 5, 6), "w", 1, 6, 16, bias=False)
    gate, up = g.slice(gates, [0, 0, 0], [1, 5, 8]), g.slice(gates, [0, 0, 8])
    return linear(g, g.p("mul", g.p("swish_fwd", gate), up), "down", 1, 8, 6, bias=False)


def log_softmax(g):
    x = g.input("x", 4, 7)
    less = g.p("sub", x, g.reduce("max", x, 1))
    return g.p("sub", less, g.p("log", g.reduce("add", g.p("exp", less), 1)))


def norm(mode, dims, scale, bias=True, groups=None):
    def build(g):
        x = g.p("tanh_fwd", g.input("x", *dims))
        own = [g.input(name, *scale) for name in ["scale", "bias"][: 1 + bias]]
        return g.p("sigmoid_fwd", g.norm(mode, x, *own, groups=groups))
    return build


def conv_bias_relu(g):
    y = g.conv(g.input("x", 2, 3, 6, 5), g.input("w", 4, 3, 3, 3), pre=(1, 1), post=(1, 1))
    return g.p("relu_fwd", g.p("add", y, g.input("bias", 1, 4, 1, 1)))


def conv_norm(g):
    y = g.conv(g.input("x", 2, 4, 7, 8), g.input("w", 6, 4, 3, 2), (2, 3), (1, 0), (0, 1))
    return g.p("elu_fwd", g.norm("batch", y, g.input("scale", 1, 6, 1, 1), g.input("bias", 1, 6, 1, 1)))


def conv_groups(g):
    y = g.conv(g.input("x", 2, 6, 6, 6), g.input("w", 6, 2, 2, 3), dilation=(2, 1), pre=(0, 2))
    return g.conv(g.p("swish_fwd", y), g.input("v", 5, 6, 1, 1))


def rope_halves(g):
    x, cos, sin = g.input("x", 2, 3, 2, 8), g.input("cos", 1, 3, 1, 4), g.input("sin", 1, 3, 1, 4)
    return g.cat(3, *g.rope(x, cos, sin, ([0] * 4, [2, 3, 2, 4]), ([0, 0, 0, 4],)))


def rope_neighbours(g):
    x, cos, sin = g.input("x", 2, 3, 2, 8), g.input("cos", 1, 3, 1, 4), g.input("sin", 1, 3, 1, 4)
    two = [1, 1, 1, 2]
    pair = g.rope(x, cos, sin, ([0] * 4, None, two), ([0, 0, 0, 1], None, two))
    both = g.cat(4, *(g.reshape(of, 2, 3, 2, 4, 1) for of in pair))
    return g.reshape(both, 2, 3, 2, 8)


def attention(g):
    q, k, v = (g.input(name, 2, 5, 4) for name in "qkv")
    return g.matmul(g.softmax(g.matmul(q, g.transpose(k, 0, 2, 1))), v)


def heads(g):
    qkv = linear(g, g.input("x", 1, 6, 5), "w", 1, 5, 24)
    cut = [g.slice(qkv, [0, 0, 8 * at], [1, 6, 8 * at + 8]) for at in range(3)]
    q, k, v = (g.transpose(g.reshape(of, 6, 2, 4), 1, 0, 2) for of in cut)
    y = g.matmul(g.softmax(g.matmul(q, g.transpose(k, 0, 2, 1))), v)
    return linear(g, g.reshape(g.transpose(y, 1, 0, 2), 1, 6, 8), "out", 1, 8, 5)


def chain(*modes, low=None):
    def build(g):
        y = g.input("x", 3, 7, low=low)
        for mode in modes:
            y = g.p(mode, y)
        return y
    return build


def two(*modes, low=None):
    def build(g):
        x, b = g.input("x", 3, 7, low=low), g.input("b", 1, 7, low=low)
        parts = [g.p(mode, x, b) for mode in modes]
        while len(parts) > 1:
            parts = [g.p("mul", parts[0], parts[1]), *parts[2:]]
        return parts[0]
    return build


def selected(g):
    x, b = g.input("x", 3, 7), g.input("b", 3, 7)
    return g.p("binary_select", g.p("exp", x), g.p("sin", b), g.input("t", 3, 7, dtype="bool"))


def joined(g):
    x, w, v = g.input("x", 1, 4, 5), g.input("w", 1, 5, 3), g.input("v", 1, 5, 6)
    return g.p("tanh_fwd", g.cat(2, g.matmul(x, w), x, g.matmul(x, v)))


def overlapping(g):
    x = g.p("sin", g.input("x", 4, 9))
    return g.p("mul", g.slice(x, [0, 0], [4, 6]), g.slice(x, [0, 3], [4, 9]))


def strided(g):
    x = g.p("exp", g.input("x", 5, 8))
    return g.p("mul", g.slice(x, [0, 1], [5, 8], [2, 3]), g.slice(x, [1, 0], [4, 3]))


def unit(g):
    x = g.input("x", 4, 6)
    return g.p("div", x, g.reduce("norm2", x, 1))


def scaled(g):
    x = g.input("x", 4, 6)
    return g.p("mul", g.p("div", x, g.reduce("amax", x, 0, 1)), g.reduce("norm1", x, 1))


def tied(g):
    w = g.input("w", 1, 5, 6)
    y = g.p("relu_fwd", g.matmul(g.input("x", 1, 4, 5), w))
    return g.matmul(y, g.transpose(w, 0, 2, 1))


def broadcast(g):
    y = g.matmul(g.input("x", 3, 4, 5), g.input("w", 1, 5, 6))
    return g.p("add", y, g.matmul(g.input("a", 1, 4, 2), g.input("b", 3, 2, 6)))


def loss(g):
    y = linear(g, g.input("x", 1, 6, 4), "w", 1, 4, 3)
    error = g.p("sub", y, g.input("target", 1, 6, 3))
    return g.reduce("avg", g.p("mul", error, error), 0, 1, 2)


def extremes(g):
    x = g.input("x", 4, 6)
    return g.p("mul", g.reduce("max", x, 1), g.p("add", g.reduce("min", x, 0), x))


def ctc(g):
    labels = [[1, 2, 3], [4, 4], [], [5, 1, 5, 2]]
    return g.ctc(g.input("x", 11, 4, 6), labels, [11, 8, 3, 10])


def ctc_mean(g):
    """Losses of logits that are products, of which one is infinite, over their labels' lengths."""
    h = g.reshape(g.input("h", 9, 3, 4), 1, 27, 4)
    logits = g.reshape(linear(g, h, "w", 1, 4, 5), 9, 3, 5)
    labels = [[1, 3], [3, 3, 3, 3, 3], [4, 0, 4]]
    losses = g.ctc(logits, labels, [9, 8, 7], blank=2, infinite="zero")
    return g.reduce("avg", g.p("mul", losses, g.input("weight", 3)), 0)


CASES = {
    "mlp": mlp, "residual": residual, "swiglu": swiglu, "log_softmax": log_softmax,
    "softmax": lambda g: g.softmax(g.input("x", 4, 9)),
    "layer_norm": norm("layer", [3, 4, 5], [1, 4, 5]), "rms_norm": norm("rms", [3, 4, 5], [1, 1, 5], False),
    "batch_norm": norm("batch", [3, 4, 5], [1, 4, 1]), "instance_norm": norm("instance", [3, 4, 5], [1, 4, 1]),
    "group_norm": norm("group", [3, 4, 5], [1, 4, 1], groups=2),
    "conv_bias_relu": conv_bias_relu, "conv_norm": conv_norm, "conv_groups": conv_groups,
    "rope_halves": rope_halves, "rope_neighbours": rope_neighbours, "attention": attention, "heads": heads,
    "gelu": chain("gelu_approx_tanh_fwd", "gelu_fwd"), "smooth": chain("elu_fwd", "softplus_fwd", "tanh_fwd"),
    "waves": chain("sin", "tan", "cos"), "roots": chain("exp", "sqrt", "log", "erf"),
    "inverse_root": chain("abs", "rsqrt", "neg"), "arithmetic": two("add", "sub", "mul", "div", "add_square"),
    "powers": two("pow", "mod", low=0.2), "choices": two("max", "min"), "selected": selected,
    "joined": joined, "overlapping": overlapping, "strided": strided, "unit": unit, "scaled": scaled,
    "tied": tied, "broadcast": broadcast, "loss": loss, "extremes": extremes,
    "ctc": ctc, "ctc_mean": ctc_mean,
}


def main():
    torch.manual_seed(3)
    problems, stored = [], {}
    for name, build in CASES.items():
        graph = Graph()
        y = build(graph)
        values = {}
        for tensor in graph.tensors:
            low, known = tensor.pop("low", None), tensor.pop("values", None)
            if tensor["name"] == y:
                tensor["name"], tensor["virtual"] = "y", False
            if tensor.get("virtual") is not None:
                tensor["virtual"] = bool(tensor["virtual"])
                continue
            dims = tensor["dims"]
            if known is not None:
                values[tensor["name"]] = known
            elif tensor["dtype"] == "bool":
                values[tensor["name"]] = torch.randint(0, 2, dims).bool()
            elif tensor["name"] == "epsilon":
                values["epsilon"] = torch.full(dims, low, dtype=torch.float64)
            else:
                value = torch.randn(dims, dtype=torch.float64)
                value = value if low is None else value.abs() + low
                values[tensor["name"]] = value.requires_grad_()
        for operation in graph.operations:
            for key, value in operation.items():
                if value == y:
                    operation[key] = "y"
            if "inputs" in operation:
                operation["inputs"] = ["y" if of == y else of for of in operation["inputs"]]
        for tensor in graph.tensors:
            if not tensor.get("virtual", True):
                del tensor["virtual"]
        dims = {tensor["name"]: tensor["dims"] for tensor in graph.tensors}
        inputs = {key: value for key, value in values.items() if value.requires_grad}
        for operation in graph.operations:
            result, value = run(operation, values, dims)
            assert list(value.shape) == dims[result], (name, operation, value.shape)
            values[result] = value
        dy = torch.randn_like(values["y"])
        gradients = torch.autograd.grad(values["y"], list(inputs.values()), dy)
        given = {key: value for key, value in values.items() if not key.startswith("t") or key in ("t", "target")}
        given |= {"d_y": dy} | {f"d_{key}": value for key, value in zip(inputs, gradients)}
        stored |= {f"{name}/{key}": value.detach().contiguous() for key, value in given.items()}
        problem = {"graph": {"tensors": graph.tensors, "operations": graph.operations}}
        problems.append({"name": name, "problem": problem, "by": list(inputs)})
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
    lines = ",\n".join(json.dumps(problem) for problem in problems)
    (folder / "gradients.json").write_text(f"[\n{lines}\n]\n")
    save_file(stored, folder / "gradients.safetensors")


if __name__ == "__main__":
    main()
