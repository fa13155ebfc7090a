"""The classic multi-head attention layer in float64 with plain loops.

Written from the document (mcDNN chapter 6: mcdnnSetAttnDescriptor, mcdnnSetSeqDataDescriptor,
mcdnnMultiHeadAttnForward), not from Kiln's code. Needs numpy.
"""

import numpy as np

AXES = ("time", "batch", "beam")


def weight_layout(heads, sizes, projections, biases):
    """Where the weights W_Q W_K W_V W_O b_Q b_K b_V b_O stand, in elements: {name: (offset, dims,
    strides)} of those that exist, and the size of all. `sizes` are those of q, k and v,
    `projections` those behind the projections of q, k, v and o, 0 where there is none.

    Elements of the vectors that go in stand slowest, those that come out fastest."""
    width = projections[2] or sizes[2]
    layout, end = {}, 0

    def place(name, dims, strides):
        nonlocal end
        layout[name] = (end, dims, strides)
        end += int(np.prod(dims))

    for name, proj, size in zip("qkv", projections, sizes):
        if proj:
            place("w_" + name, (heads, proj, size), (proj, 1, heads * proj))
    out = projections[3]
    if out:
        place("w_o", (heads, out, width), (out * width, 1, out))
    if biases:
        for name, proj in zip("qkv", projections):
            if proj:
                place("b_" + name, (heads, proj, 1), (proj, 1, 1))
        if out:
            place("b_o", (1, out, 1), (out, 1, 1))
    return layout, end


def weights_of(buffer, layout):
    """{name: array} of a weight buffer."""
    made = {}
    for name, (offset, dims, strides) in layout.items():
        at = np.indices(dims)
        made[name] = buffer[offset + sum(stride * axis for stride, axis in zip(strides, at))]
    return made


def unpack(flat, dims, order, size):
    """[batch, beam, time, size] of a sequence data buffer whose axes stand in `order`, outermost
    first."""
    shape = [dims[axis] for axis in order] + [size]
    at = [order.index(axis) for axis in ("batch", "beam", "time")]
    return flat.reshape(shape).transpose(*at, 3)


def pack(dense, order):
    """The opposite of `unpack`, flat."""
    at = [("batch", "beam", "time").index(axis) for axis in order]
    return dense.transpose(*at, 3).reshape(-1)


def forward(q, k, v, weights, heads, scaler, low, high, q_lengths, kv_lengths, residuals, step):
    """[batch, beam, time, size] of the output.

    Of each head: h = sum_i softmax_i(scaler * (W_K k_i + b_K) . (W_Q q + b_Q)) (W_V v_i + b_V) over
    the keys low[t] <= i < min(high[t], length); o = sum_h W_O h + b_O + residual. Without W_O the
    heads lie side by side. No keys, and steps past the end of a sequence of queries: h is 0.
    `step` >= 0: only that one, the others are NaN.
    """
    batch, beams, steps, _ = q.shape
    width = weights["w_v"].shape[1] if "w_v" in weights else v.shape[3]
    size = weights["w_o"].shape[1] if "w_o" in weights else heads * width
    out = np.full((batch, beams, steps, size), np.nan)

    def projected(vector, name, head):
        if "w_" + name not in weights:
            return vector
        made = weights["w_" + name][head] @ vector
        return made + weights["b_" + name][head, :, 0] if "b_" + name in weights else made

    for n, j, t in np.ndindex(batch, beams, steps):
        if step >= 0 and t != step:
            continue
        of = j if k.shape[1] > 1 else 0
        first, last = max(low[t], 0), min(high[t], kv_lengths[n][of])
        keys = range(first, last) if t < q_lengths[n][j] else range(0)
        attended = np.zeros((heads, width))
        for h in range(heads):
            query = projected(q[n, j, t], "q", h)
            scores = [scaler * projected(k[n, of, i], "k", h) @ query for i in keys]
            weight = np.exp(np.array(scores) - max(scores)) if scores else []
            for i, part in zip(keys, weight):
                attended[h] += part / np.sum(weight) * projected(v[n, of, i], "v", h)
        if "w_o" in weights:
            result = sum(weights["w_o"][h] @ attended[h] for h in range(heads))
            result = result + weights["b_o"][0, :, 0] if "b_o" in weights else result
        else:
            result = attended.reshape(-1)
        out[n, j, t] = result if residuals is None else result + residuals[n, j, t]
    return out
