#!/usr/bin/env python3
"""Compares fused graphs on one GPU, in one run: Kiln, torch.compile, bare products and a copy.

- A product of 4096^3 and 8192^3, bf16, with bias and GELU, against torch's bare product (cuBLASLt).
- SwiGLU, a multilayer perceptron, residual + RMS norm + product, softmax and a training step of
  batch norm, against torch.compile, each replayed as a CUDA graph.
- Norms, forward and backward, against a copy of as many bytes.

Needs an NVIDIA GPU; PyTorch for the peers; the binary `kiln` for Kiln (in $KILN_BINARY, in
${CARGO_TARGET_DIR:-target}/release, or beside this file). What is missing is named, and the rest is
measured. Writes fusion.json, or fusion-GROUP.json, to $OUT (or ./out) after every graph, and a
table to stdout.
"""

import sys
import tempfile

import peers
from problems import Graph


def bias_gelu(m, n, k):
    graph = Graph()
    graph.tensor("x", "bf16", [m, k])
    # As torch.nn.Linear keeps weights: rows are outputs.
    graph.tensor("w", "bf16", [k, n], strides=[1, k])
    graph.tensor("b", "bf16", [1, n])
    graph.virtual("product", [m, n])
    graph.virtual("biased", [m, n])
    graph.tensor("y", "bf16", [m, n])
    graph.then(matmul="f32", a="x", b="w", c="product")
    graph.pointwise("add", ["product", "b"], "biased")
    graph.pointwise("gelu_fwd", ["biased"], "y")
    return graph


def swiglu(m, n, k):
    graph = Graph()
    graph.tensor("x", "bf16", [m, k])
    for name in ("gate", "up"):
        graph.tensor(f"w_{name}", "bf16", [k, n], strides=[1, k])
        graph.virtual(name, [m, n])
        graph.then(matmul="f32", a="x", b=f"w_{name}", c=name)
    graph.virtual("activated", [m, n])
    graph.tensor("y", "bf16", [m, n])
    graph.pointwise("swish_fwd", ["gate"], "activated")
    graph.pointwise("mul", ["activated", "up"], "y")
    return graph


def mlp(m, n, k):
    graph = bias_gelu(m, n, k)
    graph.tensors[-1].update(name="hidden", virtual=True)
    graph.operations[-1]["output"] = "hidden"
    graph.tensor("w2", "bf16", [n, k], strides=[1, n])
    graph.tensor("b2", "bf16", [1, k])
    graph.virtual("down", [m, k])
    graph.tensor("y", "bf16", [m, k])
    graph.then(matmul="f32", a="hidden", b="w2", c="down")
    graph.pointwise("add", ["down", "b2"], "y")
    return graph


def norm_matmul(m, n, k):
    graph = Graph()
    for name in ("x", "residual"):
        graph.tensor(name, "bf16", [m, k])
    graph.tensor("sum", "bf16", [m, k])
    graph.tensor("scale", "bf16", [1, k])
    graph.tensor("epsilon", "f32", [1, 1], by_value=True)
    graph.virtual("normed", [m, k], "bf16")
    graph.tensor("w", "bf16", [k, n], strides=[1, k])
    graph.tensor("y", "bf16", [m, n])
    graph.pointwise("add", ["x", "residual"], "sum")
    graph.then(
        norm_forward="rms", phase="inference", x="sum", scale="scale", epsilon="epsilon", y="normed"
    )
    graph.then(matmul="f32", a="normed", b="w", c="y")
    return graph


def softmax(m, n):
    graph = Graph()
    graph.tensor("x", "bf16", [m, n])
    for name, dims in (("max", [m, 1]), ("shifted", [m, n]), ("exp", [m, n]), ("sum", [m, 1])):
        graph.virtual(name, dims)
    graph.tensor("y", "bf16", [m, n])
    graph.then(reduction="max", x="x", y="max")
    graph.pointwise("sub", ["x", "max"], "shifted")
    graph.pointwise("exp", ["shifted"], "exp")
    graph.then(reduction="add", x="exp", y="sum")
    graph.pointwise("div", ["exp", "sum"], "y")
    return graph


def batch_norm(n, c, h):
    graph = Graph()
    dims, channel = [n, c, h, h], [1, c, 1, 1]
    strides = [c * h * h, 1, c * h, c]
    graph.tensor("x", "bf16", dims, strides=strides)
    for name in ("scale", "bias", "running_mean", "running_var"):
        graph.tensor(name, "f32", channel)
    for name in ("epsilon", "factor"):
        graph.tensor(name, "f32", [1, 1, 1, 1], by_value=True)
    graph.tensor("normed", "f32", dims, strides=strides, virtual=True)
    graph.tensor("y", "bf16", dims, strides=strides)
    for name in ("mean", "inv_variance", "new_mean", "new_var"):
        graph.tensor(name, "f32", channel)
    graph.then(
        norm_forward="batch",
        phase="training",
        x="x",
        scale="scale",
        bias="bias",
        epsilon="epsilon",
        exp_avg_factor="factor",
        input_running_mean="running_mean",
        input_running_var="running_var",
        y="normed",
        mean="mean",
        inv_variance="inv_variance",
        output_running_mean="new_mean",
        output_running_var="new_var",
    )
    graph.pointwise("relu_fwd", ["normed"], "y")
    return graph


def norm_forward(kind, m, n):
    graph = Graph()
    graph.tensor("x", "bf16", [m, n])
    graph.tensor("scale", "bf16", [1, n])
    slots = {"x": "x", "scale": "scale"}
    if kind == "layer":
        slots["bias"] = graph.tensor("bias", "bf16", [1, n])
    slots["epsilon"] = graph.tensor("epsilon", "f32", [1, 1], by_value=True)
    slots["y"] = graph.tensor("y", "bf16", [m, n])
    graph.then(norm_forward=kind, phase="inference", **slots)
    return graph


def norm_backward(kind, m, n):
    graph = Graph()
    slots = {name: graph.tensor(name, "bf16", [m, n]) for name in ("dy", "x")}
    slots["scale"] = graph.tensor("scale", "bf16", [1, n])
    if kind == "layer":
        slots["mean"] = graph.tensor("mean", "f32", [m, 1])
    slots["inv_variance"] = graph.tensor("inv_variance", "f32", [m, 1])
    slots["dx"] = graph.tensor("dx", "bf16", [m, n])
    slots["dscale"] = graph.tensor("dscale", "f32", [1, n])
    if kind == "layer":
        slots["dbias"] = graph.tensor("dbias", "f32", [1, n])
    graph.then(norm_backward=kind, **slots)
    return graph


def cases(scale):
    """Name, group, graph, bytes of a copy to compare with, and torch's function with its shapes."""
    tokens, width, inner = 8192 // scale, 4096 // scale, 14336 // scale
    rows, columns = 32768 // scale, 8192 // scale
    products = [(f"product {n}^3, bias, gelu", n // scale) for n in (4096, 8192)]
    listed = [
        (name, "product", bias_gelu(n, n, n), 0, ("matmul", (n, n, n))) for name, n in products
    ]
    listed += [
        ("swiglu", "compile", swiglu(tokens, inner, width), 0, ("swiglu", (tokens, inner, width))),
        ("mlp", "compile", mlp(tokens, inner, width), 0, ("mlp", (tokens, inner, width))),
        (
            "residual, rms norm, product",
            "compile",
            norm_matmul(tokens, width, width),
            0,
            ("norm_matmul", (tokens, width, width)),
        ),
        ("softmax", "compile", softmax(rows, columns), 0, ("softmax", (rows, columns))),
        (
            "batch norm, training",
            "compile",
            batch_norm(32, 256, 56),
            0,
            ("batch_norm", (32, 256, 56)),
        ),
    ]
    moved = 2 * rows * columns
    for kind in ("layer", "rms"):
        listed.append((f"{kind} norm", "copy", norm_forward(kind, rows, columns), 2 * moved, None))
        backward = norm_backward(kind, rows, columns)
        listed.append((f"{kind} norm, backward", "copy", backward, 3 * moved, None))
    keys = ("name", "group", "graph", "copy_bytes", "torch")
    return [dict(zip(keys, case)) for case in listed]


def torch_function(torch, name, shape):
    """What torch computes, and its operands."""
    functional = torch.nn.functional

    def values(*dims):
        return torch.empty(dims, dtype=torch.bfloat16, device="cuda").uniform_(-0.25, 0.25)

    if name == "matmul":
        m, n, k = shape
        return lambda x, w: functional.linear(x, w), (values(m, k), values(n, k))
    if name == "swiglu":
        m, n, k = shape
        operands = (values(m, k), values(n, k), values(n, k))
        return lambda x, gate, up: functional.silu(x @ gate.T) * (x @ up.T), operands
    if name == "mlp":
        m, n, k = shape
        operands = (values(m, k), values(n, k), values(n), values(k, n), values(k))

        def mlp_of(x, w1, b1, w2, b2):
            return functional.linear(functional.gelu(functional.linear(x, w1, b1)), w2, b2)

        return mlp_of, operands
    if name == "norm_matmul":
        m, n, k = shape

        def norm_matmul_of(x, residual, scale, w):
            total = x + residual
            return total, functional.rms_norm(total, (k,), scale, 1e-3) @ w.T

        return norm_matmul_of, (values(m, k), values(m, k), values(k), values(n, k))
    if name == "softmax":
        return lambda x: functional.softmax(x, -1), (values(*shape),)
    n, c, h = shape
    x = values(n, c, h, h).to(memory_format=torch.channels_last)
    of_channel = [torch.ones(c, device="cuda") for _ in range(4)]

    def batch_norm_of(x, scale, bias, mean, variance):
        normed = functional.batch_norm(x, mean, variance, scale, bias, True, 1e-3, 1e-3)
        return functional.relu(normed)

    return batch_norm_of, (x, *of_channel)


def torch_calls(torch, case):
    """The peers of a case by name."""
    if case["group"] == "copy":
        half = case["copy_bytes"] // 2
        to, of = (torch.ones(half, dtype=torch.uint8, device="cuda") for _ in range(2))
        return {"copy": lambda: lambda: to.copy_(of)}
    function, operands = torch_function(torch, *case["torch"])
    if case["group"] == "product":
        return {"cublaslt, bare": lambda: lambda: function(*operands)}

    def compiled():
        torch._dynamo.reset()
        fused = torch.compile(function, dynamic=False)
        fused(*operands)
        return peers.captured(torch, lambda: fused(*operands))

    return {"compile": compiled}


def main():
    parser = peers.parser(__doc__)
    parser.add_argument("--scale", type=int, default=1, help="divides the sizes, to try it out")
    parser.add_argument("--group", choices=("product", "compile", "copy"), help="only these")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        chosen = [
            case for case in cases(options.scale) if options.group in (None, case["group"])
        ]
        name = "fusion" if options.group is None else f"fusion-{options.group}"
        files = {
            case["name"]: case.pop("graph").write(folder, at) for at, case in enumerate(chosen)
        }

        def kiln_command(case):
            return ["graph", files[case["name"]]]

        def describe(case):
            return case["name"]

        return peers.compare(options, name, chosen, kiln_command, torch_calls, describe)


if __name__ == "__main__":
    sys.exit(main())
