#!/usr/bin/env python3
"""Compares convolutions on one GPU, in one run: Kiln and torch (cuDNN with its search, NHWC, bf16).

Layers of ResNet-50 at a batch of 64, forward, and the gradients of data and filter: convolutions
alone on both sides, so that no fusion is counted. torch is replayed as a CUDA graph.

Needs an NVIDIA GPU; PyTorch for the peers; the binary `kiln` for Kiln (in $KILN_BINARY, in
${CARGO_TARGET_DIR:-target}/release, or beside this file). What is missing is named, and the rest is
measured. Writes convolution.json, or convolution-PASS.json, to $OUT (or ./out) after every layer,
and a table to stdout.
"""

import sys

import peers
import problems

PASSES = ("forward", "data", "filter")
# Channels, channels of the output, extent, filter, stride.
LAYERS = [
    (64, 64, 56, 3, 1),
    (64, 256, 56, 1, 1),
    (128, 128, 56, 3, 2),
    (128, 128, 28, 3, 1),
    (256, 512, 28, 1, 1),
    (256, 256, 14, 3, 1),
    (512, 512, 7, 3, 1),
]


def cases(batch):
    """Layers by pass."""
    keys = ("channels", "filters", "extent", "window", "stride")
    return [
        {"group": group, "batch": batch} | dict(zip(keys, layer))
        for group in PASSES
        for layer in LAYERS
    ]


def shapes(case):
    """The dims of x, w and y."""
    extent, window = case["extent"], case["window"]
    below = (extent + 2 * (window // 2) - window) // case["stride"] + 1
    x = [case["batch"], case["channels"], extent, extent]
    w = [case["filters"], case["channels"], window, window]
    return x, w, [case["batch"], case["filters"], below, below]


def problem(case):
    """The pass as a graph, channels innermost."""
    graph = problems.Graph()
    x, w, y = shapes(case)

    def tensor(name, dims):
        _, channels, height, width = dims
        strides = [channels * height * width, 1, channels * width, channels]
        return graph.tensor(name, "bf16", dims, strides=strides)

    around = [case["window"] // 2] * 2
    how = {
        "pre_paddings": around,
        "post_paddings": around,
        "filter_strides": [case["stride"]] * 2,
    }
    if case["group"] == "forward":
        slots = {"x": tensor("x", x), "w": tensor("w", w), "y": tensor("y", y)}
        graph.then(convolution_forward="f32", **how, **slots)
    elif case["group"] == "data":
        slots = {"w": tensor("w", w), "dy": tensor("dy", y), "dx": tensor("dx", x)}
        graph.then(convolution_backward_data="f32", **how, **slots)
    else:
        slots = {"x": tensor("x", x), "dy": tensor("dy", y), "dw": tensor("dw", w)}
        graph.then(convolution_backward_filter="f32", **how, **slots)
    return graph


def torch_calls(torch, case):
    """torch's convolution, its algorithm searched for."""
    torch.backends.cudnn.benchmark = True
    x, w, y = (
        torch.empty(dims, dtype=torch.bfloat16, device="cuda")
        .uniform_(-0.25, 0.25)
        .to(memory_format=torch.channels_last)
        for dims in shapes(case)
    )
    stride, around = [case["stride"]] * 2, [case["window"] // 2] * 2

    def call():
        if case["group"] == "forward":
            return torch.ops.aten.convolution(x, w, None, stride, around, [1, 1], False, [0, 0], 1)
        mask = [case["group"] == "data", case["group"] == "filter", False]
        return torch.ops.aten.convolution_backward(
            y, x, w, None, stride, around, [1, 1], False, [0, 0], 1, mask
        )

    return {"cudnn": lambda: peers.captured(torch, call)}


def describe(case):
    """A line's beginning."""
    _, _, y = shapes(case)
    products = 2 * y[0] * y[1] * y[2] * y[3] * case["channels"] * case["window"] ** 2
    us = case.get("kiln", {}).get("pass_us")
    name = f"{case['group']} {case['channels']}>{case['filters']} {case['extent']}^2"
    name += f" {case['window']}x{case['window']}/{case['stride']}"
    return name + (f" {products / us / 1e6:.0f} TFLOP/s" if us else "")


def main():
    parser = peers.parser(__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--group", choices=PASSES, help="only this pass")
    options = parser.parse_args()
    chosen = [case for case in cases(options.batch) if options.group in (None, case["group"])]
    name = "convolution" if options.group is None else f"convolution-{options.group}"
    return problems.compare(options, name, chosen, problem, torch_calls, describe)


if __name__ == "__main__":
    sys.exit(main())
