"""Writes torch.json and torch.safetensors: norms, softmax and pointwise operations of torch as
Kiln problems, on operands with NaN, infinities, zeros of both signs and what overflows.

    pip install torch safetensors
    python3 tests/data/graphs/torch_cases.py

Tensors are named `case/tensor`, results as torch computes them in the case's type. Written with
torch 2.15.0 on a CPU.
"""

import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional

NAMES = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.bool: "bool",
}
NAN, INF = math.nan, math.inf


def problem(name, given, operations, results, virtual=()):
    """A case: operands, operations, what torch gives, and extents of what lies between."""
    tensors = [
        {"name": key, "dtype": NAMES[of.dtype], "dims": list(of.shape)}
        for key, of in [*given.items(), *results.items()]
    ]
    tensors += [
        {"name": key, "dtype": "f32", "dims": list(dims), "virtual": True} for key, dims in virtual
    ]
    graph = {"tensors": tensors, "operations": operations}
    own = {f"{name}/{key}": of.contiguous().clone() for key, of in {**given, **results}.items()}
    return {"name": name, "problem": {"graph": graph}}, own


def spoiled(x):
    """NaN in one row, infinities of one and of both signs in others."""
    x[1, 3] = NAN
    x[2, 5] = INF
    x[3, 7], x[3, 8] = INF, -INF
    return x


def norms():
    for dtype in (torch.float32, torch.bfloat16):
        x = spoiled(torch.randn(6, 40)).to(dtype)
        scale, bias = torch.randn(1, 40).to(dtype), torch.randn(1, 40).to(dtype)
        epsilon = torch.full((1, 1), 1e-5)
        given = {"x": x, "scale": scale, "bias": bias, "epsilon": epsilon}
        operation = {"phase": "inference", **{key: key for key in [*given, "y"]}}
        y = functional.layer_norm(x, [40], scale[0], bias[0], 1e-5)
        layer = {"norm_forward": "layer", **operation}
        yield problem(f"layer_norm_{NAMES[dtype]}", given, [layer], {"y": y})
        y = functional.rms_norm(x, [40], scale[0], 1e-5)
        del given["bias"], operation["bias"]
        rms = {"norm_forward": "rms", **operation}
        yield problem(f"rms_norm_{NAMES[dtype]}", given, [rms], {"y": y})
    x = torch.randn(3, 8, 5)
    x[0, 1, 2], x[1, 6, 0] = NAN, INF
    scale, bias, epsilon = torch.randn(1, 8, 1), torch.randn(1, 8, 1), torch.full((1, 1, 1), 1e-5)
    given = {"x": x, "scale": scale, "bias": bias, "epsilon": epsilon}
    names = {key: key for key in [*given, "y"]}
    y = functional.group_norm(x, 4, scale.flatten(), bias.flatten(), 1e-5)
    group = {"norm_forward": "group", "groups": 4, "phase": "inference", **names}
    yield problem("group_norm", given, [group], {"y": y})


def batch_norm():
    """Training: one channel has a NaN, one an infinity, one does not vary, one is far from 0."""
    x = torch.randn(4, 6, 9)
    x[1, 1, 4], x[2, 2, 0] = NAN, INF
    x[:, 3], x[:, 4] = 2.5, x[:, 4] + 300
    scale, bias = torch.randn(1, 6, 1), torch.randn(1, 6, 1)
    mean, var = torch.randn(1, 6, 1), torch.rand(1, 6, 1)
    given = {"x": x, "scale": scale, "bias": bias}
    given |= {"epsilon": torch.full((1, 1, 1), 1e-3), "exp_avg_factor": torch.full((1, 1, 1), 0.25)}
    given |= {"input_running_mean": mean, "input_running_var": var}
    new_mean, new_var = mean.flatten().clone(), var.flatten().clone()
    y, saved_mean, saved_inverse = torch.native_batch_norm(
        x, scale.flatten(), bias.flatten(), new_mean, new_var, True, 0.25, 1e-3
    )
    results = {"y": y, "mean": saved_mean, "inv_variance": saved_inverse}
    results |= {"output_running_mean": new_mean, "output_running_var": new_var}
    results = {key: of if key == "y" else of.reshape(1, 6, 1) for key, of in results.items()}
    names = {key: key for key in [*given, *results]}
    operation = {"norm_forward": "batch", "phase": "training", **names}
    yield problem("batch_norm_training", given, [operation], results)


def softmax():
    x = spoiled(torch.randn(7, 33))
    # Ties, sums that overflow in exp alone, and keys that are left out.
    x[4], x[5] = 3.0, x[5] * 80 + 500
    x[6, ::2] = -INF
    most = torch.amax(x, 1, True)
    steps = [
        {"reduction": "max", "x": "x", "y": "most"},
        {"reduction": "min", "x": "x", "y": "least"},
        {"pointwise": "cmp_eq", "inputs": ["x", "most"], "output": "is_most"},
        {"pointwise": "sub", "inputs": ["x", "most"], "output": "shifted"},
        {"pointwise": "exp", "inputs": ["shifted"], "output": "exp"},
        {"reduction": "add", "x": "exp", "y": "sum"},
        {"pointwise": "log", "inputs": ["sum"], "output": "log"},
    ]
    softmax = {"pointwise": "div", "inputs": ["exp", "sum"], "output": "softmax"}
    log_softmax = {"pointwise": "sub", "inputs": ["shifted", "log"], "output": "log_softmax"}
    virtual = [("shifted", [7, 33]), ("exp", [7, 33]), ("sum", [7, 1]), ("log", [7, 1])]
    results = {"most": most, "least": torch.amin(x, 1, True), "is_most": x == most}
    results |= {"softmax": torch.softmax(x, 1), "log_softmax": torch.log_softmax(x, 1)}
    yield problem("softmax", {"x": x}, [*steps, softmax, log_softmax], results, virtual)
    # Where the most is infinite, torch's own formula differs from the one above.
    x = x[[0, 1, 4, 5, 6]]
    most, sums = torch.amax(x, 1, True), torch.logsumexp(x, 1, True)
    given = [step for step in steps if step["output" if "output" in step else "y"] != "is_most"]
    given = [step for step in given if step.get("y") != "least"]
    total = {"pointwise": "add", "inputs": ["log", "most"], "output": "logsumexp"}
    virtual = [("shifted", [5, 33]), ("exp", [5, 33]), ("sum", [5, 1]), ("log", [5, 1])]
    yield problem(
        "logsumexp", {"x": x}, [*given, total], {"most": most, "logsumexp": sums}, virtual
    )


EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -2.5, 20.0, -20.0, 88.0, -88.0, 100.0, -100.0]
EDGES += [1e-3, -1e-3, 1e-38, 3e38, -3e38, INF, -INF, NAN]
UNARY = {
    "abs": torch.abs,
    "ceil": torch.ceil,
    "floor": torch.floor,
    "neg": torch.neg,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "exp": torch.exp,
    "log": torch.log,
    "erf": torch.erf,
    "logical_not": lambda x: torch.logical_not(x).float(),
    "tanh_fwd": torch.tanh,
    "sigmoid_fwd": torch.sigmoid,
    "elu_fwd": functional.elu,
    # In f32 torch's vectors make NaN of infinity, unlike its numbers and its f64.
    "gelu_fwd": lambda x: functional.gelu(x.double()).float(),
    "gelu_approx_tanh_fwd": lambda x: functional.gelu(x, approximate="tanh"),
    "softplus_fwd": functional.softplus,
    "swish_fwd": functional.silu,
}
BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "pow": torch.pow,
    "mod": torch.fmod,
    "max": torch.fmax,
    "min": torch.fmin,
    "cmp_eq": lambda x, b: (x == b).float(),
    "cmp_neq": lambda x, b: (x != b).float(),
    "cmp_gt": lambda x, b: (x > b).float(),
    "cmp_ge": lambda x, b: (x >= b).float(),
    "cmp_lt": lambda x, b: (x < b).float(),
    "cmp_le": lambda x, b: (x <= b).float(),
    "logical_and": lambda x, b: torch.logical_and(x, b).float(),
    "logical_or": lambda x, b: torch.logical_or(x, b).float(),
}
NUMBERS = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 3.0, 7.0, 1e-3, INF, -INF, NAN]


def pointwise():
    x = torch.tensor(EDGES)
    step = lambda mode, inputs, output, **more: {
        "pointwise": mode,
        "inputs": inputs,
        "output": output,
        **more,
    }
    steps = [step(mode, ["x"], mode) for mode in UNARY]
    results = {mode: of(x) for mode, of in UNARY.items()}
    kept = {"propagate_nan": True}
    steps += [step("relu_fwd", ["x"], "relu", **kept)]
    steps += [step("relu_fwd", ["x"], "relu6", relu_upper_clip=6, **kept)]
    steps += [step("relu_fwd", ["x"], "leaky", relu_lower_clip_slope=0.25, **kept)]
    results |= {"relu": torch.relu(x), "relu6": functional.relu6(x)}
    results |= {"leaky": functional.leaky_relu(x, 0.25)}
    yield problem("unary", {"x": x}, steps, results)

    x, b = torch.tensor(NUMBERS)[:, None], torch.tensor(NUMBERS)[None, :]
    steps = [step(mode, ["x", "b"], mode) for mode in BINARY]
    results = {mode: of(x, b) for mode, of in BINARY.items()}
    steps += [step("max", ["x", "b"], "maximum", **kept)]
    steps += [step("min", ["x", "b"], "minimum", **kept)]
    results |= {"maximum": torch.maximum(x, b), "minimum": torch.minimum(x, b)}
    yield problem("binary", {"x": x, "b": b}, steps, results)

    # Halfway between neighbours, at the edge of overflow, and below the least normal number.
    x = [1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 2049.0, 65519.0, 65520.0]
    x += [3.38e38, 3.4e38, 2.0**-14, 2.0**-24, 2.0**-25, 2.0**-25 * 1.01, 2.0**-126, 1e-45]
    x = torch.tensor([*x, *(-of for of in x), *EDGES])
    steps = [step("identity", ["x"], "half"), step("identity", ["x"], "brain")]
    results = {"half": x.to(torch.float16), "brain": x.to(torch.bfloat16)}
    yield problem("casts", {"x": x}, steps, results)


def main():
    torch.manual_seed(11)
    cases, tensors = [], {}
    for make in (norms, batch_norm, softmax, pointwise):
        for made, own in make():
            cases.append(made)
            tensors |= own
    here = Path(__file__).parent
    save_file(tensors, here / "torch.safetensors")
    lines = ",\n".join(json.dumps(of) for of in cases)
    (here / "torch.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
