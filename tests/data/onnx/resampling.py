"""Rules of ONNX's pooling and resizing: what `extract.py` makes of them.

Positions of a resize are exact fractions here; ONNX's are of floating point, which its node tests
do not tell apart.
"""

from fractions import Fraction
from math import prod

from convolutions import halves


# Cases of which a result is typed in.
ROUNDED = ["averagepool_2d_ceil_last_window_starts_on_pad"]

# Of images.
ELEMENTS_MAX = 1 << 15


class Inexpressible(Exception):
    """A node that is no resampling of ours, with the reason."""


def shown(numbers):
    return [int(at) if Fraction(at).denominator == 1 else str(Fraction(at)) for at in numbers]


def resample(graph, x, mode, out, window, strides, pre, post, **keys):
    if prod(x.dims) > ELEMENTS_MAX:
        raise Inexpressible(f"files are small: an image has more than {ELEMENTS_MAX} elements")
    y = graph.result([*x.dims[:2], *out], x.dtype)
    operation = {
        "resample_forward": mode,
        "window_dims": shown(window),
        "strides": shown(strides),
        "pre_paddings": shown(pre),
        "post_paddings": shown(post),
        **keys,
        "x": x.name,
        "y": y.name,
    }
    return graph.add(operation, "y", [x], y)


def pool(mode, padding):
    def rule(graph, inputs, attributes):
        x, taps = inputs[0], attributes["kernel_shape"]
        spatial, image = len(taps), x.dims[2:]
        if any(dilation != 1 for dilation in attributes.get("dilations", [])):
            raise Inexpressible("windows have no dilation")
        strides = attributes.get("strides", [1] * spatial)
        pads = attributes.get("pads", [0] * 2 * spatial)
        pre, post = pads[:spatial], pads[spatial:]
        auto = attributes.get("auto_pad", b"NOTSET")
        out = attributes["output_dims"][2:]
        if auto in (b"SAME_UPPER", b"SAME_LOWER"):
            needed = [max(0, (o - 1) * s + k - i) for o, s, k, i in zip(out, strides, taps, image)]
            pre, post = zip(*(halves(total, auto) for total in needed))
        if attributes["name"] in ROUNDED:
            raise Inexpressible("what ONNX expects is written with four digits")
        included = attributes.get("count_include_pad", 0)
        # The last window of `ceil_mode` reaches beyond the padding.
        reach = [(o - 1) * s + k - i - a for o, s, k, i, a in zip(out, strides, taps, image, pre)]
        if included and any(r > b for r, b in zip(reach, post)):
            raise Inexpressible("a window is divided by what of it lies in the padded image")
        post = [max(r, b if b - r < s else r) for r, b, s in zip(reach, post, strides)]
        own = mode if mode == "maxpool" else f"avgpool_{'include' if included else 'exclude'}_padding"
        keys = {"padding_mode": padding, "propagate_nan": True} if mode == "maxpool" else {}
        return resample(graph, x, own, out, taps, strides, pre, post, **keys)

    return rule


def whole(mode):
    """The rule of a pooling over all of an image."""

    def rule(graph, inputs, attributes):
        x = inputs[0]
        image, none = x.dims[2:], [0] * (len(x.dims) - 2)
        return resample(graph, x, mode, [1] * len(image), image, image, none, none)

    return rule


def positions(kind, extent, out, scale):
    """Stride and position of the first output, in elements."""
    step = 1 / scale
    if kind == "asymmetric":
        return step, Fraction(0)
    if kind == "align_corners":
        length = scale * extent
        return (extent - 1) / (length - 1) if length > 1 else Fraction(1), Fraction(0)
    if kind == "pytorch_half_pixel" and out == 1:
        return step, Fraction(0)
    start = step / 2 - Fraction(1, 2)
    if kind == "half_pixel_symmetric":
        start += Fraction(extent, 2) * (1 - out / (scale * extent))
    return step, start


def rounded(kind, step, start):
    """Where a position must be for the nearest element to be the one that it is rounded to."""
    half = Fraction(1, 2)
    if kind == "round_prefer_ceil":
        return start
    if kind == "floor":
        return start - half
    # Up from a multiple of the least part: just short of a whole element further.
    moved = start if kind == "ceil" else start - half
    least = Fraction(1, (step.denominator * moved.denominator))
    return moved + 1 - least - half


def resize(graph, inputs, attributes):
    x = inputs[0]
    mode = attributes.get("mode", b"nearest").decode()
    kind = attributes.get("coordinate_transformation_mode", b"half_pixel").decode()
    if attributes["op_type"] == "Upsample":
        kind, attributes = "asymmetric", attributes | {"nearest_mode": b"floor"}
    if mode == "cubic":
        raise Inexpressible("no mode of resampling is cubic")
    if attributes.get("antialias", 0):
        raise Inexpressible("no mode of resampling filters what it leaves out")
    if kind == "tf_crop_and_resize":
        raise Inexpressible("no resampling is of a region")
    out = attributes["output_dims"]
    axes = [axis % len(x.dims) for axis in attributes.get("axes", range(len(x.dims)))]
    scales = {axis: Fraction(out[axis], x.dims[axis]) for axis in axes}
    if attributes["scales"] is not None:
        own = [Fraction(float(scale)).limit_denominator(1000) for scale in attributes["scales"]]
        scales = dict(zip(axes, own))
    elif attributes.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        least = attributes["keep_aspect_ratio_policy"] == b"not_larger"
        sizes = dict(zip(axes, attributes["sizes"]))
        ratios = [Fraction(int(size), x.dims[axis]) for axis, size in sizes.items()]
        scales = dict.fromkeys(axes, min(ratios) if least else max(ratios))
    spatial = range(2, len(x.dims))
    steps, pre, post = [], [], []
    taps = 2 if mode == "linear" else 1
    for axis in spatial:
        extent = x.dims[axis]
        step, start = positions(kind, extent, out[axis], scales.get(axis, Fraction(1)))
        if mode == "nearest":
            nearest = attributes.get("nearest_mode", b"round_prefer_floor").decode()
            start = rounded(nearest, step, start)
        steps.append(step)
        pre.append(-start)
        post.append((out[axis] - 1) * step + taps - extent + start)
    own = "bilinear" if mode == "linear" else "nearest"
    return resample(
        graph, x, own, out[2:], [taps] * len(steps), steps, pre, post, padding_mode="edge"
    )


RULES = {
    "AveragePool": pool("avgpool", "zero"),
    "GlobalAveragePool": whole("avgpool_exclude_padding"),
    "GlobalMaxPool": whole("maxpool"),
    "MaxPool": pool("maxpool", "negative_infinity"),
    "Resize": resize,
    "Upsample": resize,
}

# The only operand of theirs that is a tensor of the problem is the first.
RESIZES = ("Resize", "Upsample")
