"""Writes resample.json and resample.safetensors: pooling and interpolation of torch with the
gradients that autograd gives, as Kiln problems.

    pip install torch safetensors
    python3 tests/data/graphs/torch_resample.py

Tensors are named `case/tensor`. Channels lie last where a case says so. torch's index of a winner
counts in the image; Kiln's, which counts in the window, follows from it. Written with torch 2.15.0
on a CPU.
"""

import json
from fractions import Fraction
from itertools import product
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional

from torch_convolutions import NAMES, tensor

POOLS = {
    "maxpool": {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d},
    "avgpool": {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d},
}

# Dimensions of x, taps, and what torch's functions take.
POOLED = {
    "plain": ((2, 3, 6, 6), (2, 2), {}),
    "resnet_stem": ((1, 4, 17, 17), (3, 3), dict(stride=2, padding=1, last=True)),
    "overlapping": ((2, 3, 7, 9), (3, 2), dict(stride=(2, 1), padding=(1, 0))),
    "apart": ((2, 3, 11, 8), (2, 3), dict(stride=(4, 5))),
    "line": ((2, 5, 20), (4,), dict(stride=3, padding=2)),
    "volume": ((2, 3, 5, 6, 4), (2, 3, 2), dict(stride=(2, 1, 2), padding=(0, 1, 1))),
    "global": ((2, 8, 7, 7), (7, 7), dict(last=True)),
    "wide": ((1, 3, 8, 8), (3, 3), dict(stride=2, padding=1, dtype=torch.float64)),
    "half": ((2, 8, 8, 8), (3, 3), dict(stride=2, padding=1, dtype=torch.bfloat16, last=True)),
    "ties": ((2, 3, 9, 9), (3, 3), dict(stride=2, padding=1, steps=2)),
}

# Dimensions of x, and extents of y, in f32.
SCALED = {
    "doubled": ((2, 3, 5, 4), (10, 8), {}),
    "halved": ((2, 3, 8, 6), (4, 3), dict(last=True)),
    "odd": ((1, 5, 7, 9), (10, 4), {}),
    "thirds": ((1, 2, 6, 3), (4, 9), dict(last=True)),
    "one": ((2, 3, 5, 5), (1, 7), {}),
}


def each(of, count):
    return list(of) if isinstance(of, tuple) else [of] * count


def shown(number):
    number = Fraction(number)
    return int(number) if number.denominator == 1 else f"{number.numerator}/{number.denominator}"


def in_window(winners, x, taps, strides, paddings):
    """Offsets in windows of winners that are numbered in the image."""
    offsets = torch.zeros_like(winners, dtype=torch.int32)
    for at in product(*(range(extent) for extent in winners.shape)):
        rest, tap, scale = int(winners[at]), 0, 1
        for axis in reversed(range(len(taps))):
            rest, own = divmod(rest, x.shape[2 + axis])
            tap += scale * (own - (at[2 + axis] * strides[axis] - paddings[axis]))
            scale *= taps[axis]
        offsets[at] = tap
    return offsets


def problem(name, mode, window, passes, last, dtype):
    math = {"math": "f64"} if dtype == torch.float64 else {}
    for kind, tensors in passes.items():
        key = f"resample_{kind.split('_')[0]}"
        operation = {key: mode, **math, **window, **{slot: slot for slot in tensors}}
        graph = {
            "tensors": [tensor(slot, of, last) for slot, of in tensors.items()],
            "operations": [operation],
        }
        case = f"{name}_{kind}"
        own = {f"{case}/{slot}": of.detach().contiguous().clone() for slot, of in tensors.items()}
        yield {"name": case, "problem": {"graph": graph}}, own


def pools(name, dims, taps, options):
    options = dict(stride=taps, padding=0, dtype=torch.float32, last=False, steps=0) | options
    count, dtype, last = len(taps), options["dtype"], options["last"]
    strides, paddings = each(options["stride"], count), each(options["padding"], count)
    x = torch.randn(*dims)
    # Few different values: windows in which several elements are the greatest.
    x = (x * options["steps"]).round() / options["steps"] if options["steps"] else x
    x = x.to(dtype).requires_grad_()
    window = {
        "window_dims": list(taps),
        "strides": strides,
        "pre_paddings": paddings,
        "post_paddings": paddings,
    }
    moved = dict(stride=strides, padding=paddings)
    y, winners = POOLS["maxpool"][count](x, taps, **moved, return_indices=True)
    dy = torch.randn_like(y)
    (dx,) = torch.autograd.grad(y, x, dy)
    index = in_window(winners, x, taps, strides, paddings)
    passes = {
        "forward": {"x": x, "y": y, "index": index},
        "backward_index": {"dy": dy, "index": index, "dx": dx},
        "backward": {"dy": dy, "x": x, "dx": dx},
    }
    padded = window | {"padding_mode": "negative_infinity", "propagate_nan": True}
    yield from problem(f"{name}_max", "maxpool", padded, passes, last, dtype)
    for included in [True, False]:
        y = POOLS["avgpool"][count](x, taps, **moved, count_include_pad=included)
        dy = torch.randn_like(y)
        (dx,) = torch.autograd.grad(y, x, dy)
        mode = f"avgpool_{'include' if included else 'exclude'}_padding"
        passes = {"forward": {"x": x, "y": y}, "backward": {"dy": dy, "dx": dx}}
        if dtype == torch.bfloat16:
            # torch rounds each of its sums.
            del passes["backward"]
        yield from problem(f"{name}_{mode}", mode, window, passes, last, dtype)


def interpolations(name, dims, outputs, options):
    last = options.get("last", False)
    # torch's positions are of the type of the elements: in f64 they are exact as f32 goes.
    x = torch.randn(*dims).double().requires_grad_()
    ratios = [Fraction(i, o) for i, o in zip(dims[2:], outputs)]
    corners = [Fraction(i - 1, o - 1) if o > 1 else Fraction(1) for i, o in zip(dims[2:], outputs)]
    # Positions of outputs: the stride, and what is in front of the image.
    kinds = {
        "nearest": ("nearest", {}, [(s, Fraction(1, 2)) for s in ratios]),
        "nearest-exact": ("nearest", {}, [(s, (1 - s) / 2) for s in ratios]),
        "bilinear": ("bilinear", dict(align_corners=False), [(s, (1 - s) / 2) for s in ratios]),
        "corners": ("bilinear", dict(align_corners=True), [(s, Fraction(0)) for s in corners]),
    }
    for kind, (mode, arguments, positions) in kinds.items():
        taps = 2 if mode == "bilinear" else 1
        y = functional.interpolate(x, outputs, mode="bilinear" if kind == "corners" else kind, **arguments)
        dy = torch.randn_like(y, dtype=torch.float32).double()
        (dx,) = torch.autograd.grad(y, x, dy)
        # What is left of the last window.
        post = [
            (o - 1) * s + taps - i - pre for (s, pre), i, o in zip(positions, dims[2:], outputs)
        ]
        window = {
            "window_dims": [taps] * len(outputs),
            "strides": [shown(s) for s, _ in positions],
            "pre_paddings": [shown(pre) for _, pre in positions],
            "post_paddings": [shown(of) for of in post],
            "padding_mode": "edge",
        }
        passes = {"forward": {"x": x, "y": y}, "backward": {"dy": dy, "dx": dx}}
        rounded = {
            kind: {slot: of.float() for slot, of in tensors.items()}
            for kind, tensors in passes.items()
        }
        yield from problem(f"{name}_{kind}", mode, window, rounded, last, torch.float32)


def main():
    torch.manual_seed(1)
    NAMES[torch.int32] = "i32"
    index, tensors = [], {}
    generators = [pools(name, *case) for name, case in POOLED.items()]
    generators += [interpolations(name, *case) for name, case in SCALED.items()]
    for case, own in (pair for generator in generators for pair in generator):
        index.append(case)
        tensors |= own
    here = Path(__file__).parent
    lines = ",\n".join(json.dumps(case) for case in index)
    (here / "resample.json").write_text(f"[\n{lines}\n]\n")
    save_file(tensors, here / "resample.safetensors")
    print(f"{len(index)} cases, torch {torch.__version__}")


if __name__ == "__main__":
    main()
