"""Writes convolutions.json and convolutions.safetensors: convolutions of torch with the gradients
that autograd gives, as Kiln problems.

    pip install torch safetensors
    python3 tests/data/graphs/torch_convolutions.py

Tensors are named `case/tensor`. Channels lie last where a case says so. Written with torch 2.15.0 on
a CPU.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional

NAMES = {torch.float64: "f64", torch.float32: "f32", torch.bfloat16: "bf16"}
CONVOLVE = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
ALIKE = dict(stride=1, padding=0, dilation=1, groups=1, dtype=torch.float32, last=False)

# Images, channels of the image and of the response, extents of the image and the filter.
CASES = {
    "plain": ((2, 3, 4, (6, 5), (3, 3)), {}),
    "pointwise": ((2, 8, 5, (4, 4), (1, 1)), {}),
    "strided_pointwise": ((2, 8, 5, (5, 6), (1, 1)), dict(stride=2)),
    "resnet_stem": ((1, 3, 8, (17, 17), (7, 7)), dict(stride=2, padding=3)),
    "same": ((2, 8, 8, (6, 6), (3, 3)), dict(padding=1, last=True)),
    "downsampling": ((2, 6, 12, (8, 7), (3, 3)), dict(stride=2, padding=1, last=True)),
    "dilated": ((1, 4, 4, (11, 9), (3, 3)), dict(dilation=3, padding=3)),
    "dilated_strided": ((2, 3, 5, (13, 10), (3, 2)), dict(dilation=(2, 3), stride=(3, 2), padding=(2, 1))),
    "grouped": ((2, 6, 9, (7, 7), (3, 3)), dict(groups=3, padding=1)),
    "depthwise": ((2, 7, 7, (8, 8), (3, 3)), dict(groups=7, padding=1, stride=2, last=True)),
    "multiplied": ((2, 4, 12, (6, 6), (5, 5)), dict(groups=4, padding=2)),
    "whisper": ((2, 5, 8, (20,), (3,)), dict(stride=2, padding=1)),
    "long": ((1, 1, 1, (40,), (9,)), dict(padding=4)),
    "volume": ((2, 3, 4, (4, 5, 6), (3, 2, 3)), dict(stride=(1, 2, 1), padding=(1, 0, 1))),
    "far": ((1, 2, 3, (9, 9), (2, 2)), dict(stride=(4, 5))),
    "wide": ((2, 5, 6, (7, 5), (3, 3)), dict(padding=1, dtype=torch.float64)),
    "half": ((2, 8, 8, (6, 6), (3, 3)), dict(padding=1, dtype=torch.bfloat16, last=True)),
    "images": ((3, 64, 24, (7, 7), (3, 3)), dict(padding=1, dtype=torch.bfloat16)),
    "images_pointwise": ((3, 16, 40, (8, 6), (1, 1)), dict(dtype=torch.bfloat16)),
    "images_grouped": ((2, 16, 16, (6, 8), (3, 3)), dict(groups=2, padding=1)),
    "patches": ((2, 3, 24, (32, 32), (16, 16)), dict(stride=16, dtype=torch.bfloat16, last=True)),
    "patches_left_over": ((2, 5, 6, (10, 13), (3, 4)), dict(stride=(3, 4), last=True)),
    "column": ((1, 8, 16, (5, 64), (3, 1)), dict(padding=(1, 0), dtype=torch.bfloat16)),
    "stem": ((1, 3, 16, (14, 18), (7, 7)), dict(stride=2, padding=3, dtype=torch.bfloat16, last=True)),
    "stem_plain": ((1, 3, 16, (10, 9), (3, 3)), dict(padding=1, dtype=torch.bfloat16)),
    "patches_14": ((1, 3, 10, (28, 28), (14, 14)), dict(stride=14, dtype=torch.bfloat16)),
    "convnext": ((2, 9, 9, (14, 14), (7, 7)), dict(groups=9, padding=3, dtype=torch.bfloat16, last=True)),
    "efficientnet": ((2, 6, 6, (14, 14), (5, 5)), dict(groups=6, padding=2, stride=2)),
}


def tensor(name, of, last):
    """A tensor of a problem, with the strides that channels last give it."""
    dims, strides, step = list(of.shape), {}, 1
    order = [1, *range(of.dim() - 1, 1, -1), 0] if last else range(of.dim() - 1, -1, -1)
    for axis in order:
        strides[axis] = step
        step *= dims[axis]
    packed = {"name": name, "dtype": NAMES[of.dtype], "dims": dims}
    return packed | ({"strides": [strides[axis] for axis in range(of.dim())]} if last else {})


def cases(name, extents, options):
    n, channels, responses, image, taps = extents
    options = ALIKE | options
    last, dtype = options.pop("last"), options.pop("dtype")
    groups = options["groups"]
    x = torch.randn(n, channels, *image).to(dtype).requires_grad_()
    w = torch.randn(responses, channels // groups, *taps).to(dtype).requires_grad_()
    y = CONVOLVE[len(image)](x, w, **options)
    dy = torch.randn_like(y)
    dx, dw = torch.autograd.grad(y, [x, w], dy)
    each = lambda of: list(of) if isinstance(of, tuple) else [of] * len(image)
    window = {
        "filter_strides": each(options["stride"]),
        "dilations": each(options["dilation"]),
        "pre_paddings": each(options["padding"]),
        "post_paddings": each(options["padding"]),
    }
    math = "f64" if dtype == torch.float64 else "f32"
    passes = {
        "forward": {"x": x, "w": w, "y": y},
        "backward_data": {"w": w, "dy": dy, "dx": dx},
        "backward_filter": {"x": x, "dy": dy, "dw": dw},
    }
    for kind, tensors in passes.items():
        operation = {f"convolution_{kind}": math, **window, **{key: key for key in tensors}}
        graph = {
            "tensors": [tensor(key, of, last) for key, of in tensors.items()],
            "operations": [operation],
        }
        case = f"{name}_{kind}"
        own = {f"{case}/{key}": of.detach().contiguous().clone() for key, of in tensors.items()}
        yield {"name": case, "problem": {"graph": graph}}, own


def main():
    torch.manual_seed(1)
    index, tensors = [], {}
    for name, (extents, options) in CASES.items():
        for case, own in cases(name, extents, options):
            index.append(case)
            tensors |= own
    here = Path(__file__).parent
    lines = ",\n".join(json.dumps(case) for case in index)
    (here / "convolutions.json").write_text(f"[\n{lines}\n]\n")
    save_file(tensors, here / "convolutions.safetensors")
    print(f"{len(index)} cases, torch {torch.__version__}")


if __name__ == "__main__":
    main()
