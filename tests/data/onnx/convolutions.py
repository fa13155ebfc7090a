"""Rules of ONNX's convolutions: what `extract.py` makes of them.

ConvTranspose is the gradient of a convolution with respect to its image.
"""


def window(inputs, attributes):
    """Taps, strides, dilations, and paddings in front and behind where they are said."""
    x, w = inputs[:2]
    spatial = len(x.dims) - 2
    taps = w.dims[2:]
    strides = attributes.get("strides", [1] * spatial)
    dilations = attributes.get("dilations", [1] * spatial)
    pads = attributes.get("pads", [0] * 2 * spatial)
    return taps, strides, dilations, pads[:spatial], pads[spatial:]


def reach(taps, dilations):
    """Elements from the first tap to the last."""
    return [d * (k - 1) + 1 for k, d in zip(taps, dilations)]


def halves(total, auto):
    """Padding in front and behind; what is left over goes behind in SAME_UPPER."""
    less, more = total // 2, total - total // 2
    return (less, more) if auto == b"SAME_UPPER" else (more, less)


def operation(kind, strides, dilations, pre, post, slots):
    return {
        kind: "f32",
        "filter_strides": [int(at) for at in strides],
        "dilations": [int(at) for at in dilations],
        "pre_paddings": [int(at) for at in pre],
        "post_paddings": [int(at) for at in post],
        **{slot: operand.name for slot, operand in slots.items()},
    }


def biased(graph, result, bias):
    """A bias for each channel, the second dimension."""
    if bias is None:
        return result
    bias.dims = [1, bias.array.size] + [1] * (len(result.dims) - 2)
    return graph.op("add", result, bias)


def conv(graph, inputs, attributes):
    x, w, bias = (list(inputs) + [None])[:3]
    taps, strides, dilations, pre, post = window(inputs, attributes)
    auto = attributes.get("auto_pad", b"NOTSET")
    if auto in (b"SAME_UPPER", b"SAME_LOWER"):
        out = [-(-extent // stride) for extent, stride in zip(x.dims[2:], strides)]
        needed = [
            max(0, (o - 1) * s + r - i)
            for o, s, r, i in zip(out, strides, reach(taps, dilations), x.dims[2:])
        ]
        pre, post = zip(*(halves(total, auto) for total in needed))
    out = [
        1 + (i + a + b - r) // s
        for i, a, b, r, s in zip(x.dims[2:], pre, post, reach(taps, dilations), strides)
    ]
    y = graph.result([x.dims[0], w.dims[0], *out])
    slots = {"x": x, "w": w, "y": y}
    own = operation("convolution_forward", strides, dilations, pre, post, slots)
    return biased(graph, graph.add(own, "y", [x, w], y), bias)


def conv_transpose(graph, inputs, attributes):
    dy, w, bias = (list(inputs) + [None])[:3]
    taps, strides, dilations, pre, post = window(inputs, attributes)
    extra = attributes.get("output_padding", [0] * len(taps))
    whole = [
        s * (i - 1) + e + r
        for s, i, e, r in zip(strides, dy.dims[2:], extra, reach(taps, dilations))
    ]
    auto = attributes.get("auto_pad", b"NOTSET")
    out = attributes.get("output_shape")
    if auto in (b"SAME_UPPER", b"SAME_LOWER"):
        out = [i * s for i, s in zip(dy.dims[2:], strides)]
    if out:
        # What an output is longer than all that taps reach stays 0, as no tap reaches it.
        pre, post = zip(*(halves(max(0, w - o), auto) for w, o in zip(whole, out)))
    out = out or [w - a - b for w, a, b in zip(whole, pre, post)]
    dx = graph.result([dy.dims[0], w.dims[1] * attributes.get("group", 1), *out])
    slots = {"w": w, "dy": dy, "dx": dx}
    own = operation("convolution_backward_data", strides, dilations, pre, post, slots)
    return biased(graph, graph.add(own, "dx", [w, dy], dx), bias)


RULES = {"Conv": conv, "ConvTranspose": conv_transpose}
