"""Arguments of the kernels, and what must come out of them, by numpy.

Each function gives the arguments, further buffers, the grid, and a function from the saved buffers
to a text that says what is wrong, or None; or it makes such a function.
"""

import numpy as np

from formats import E2M1, E4M3, E5M2, bf16, from_bf16, nearest, philox_uniform

SINGLE = 2.0**-24
HALF = 2.0**-11
BFLOAT = 2.0**-8


def rng():
    return np.random.default_rng(7)


def buffer(dtype, count, fill=None, save=False):
    return {"dtype": dtype, "count": int(count), "fill": fill, "save": save}


def scalar(dtype, value):
    return {"dtype": dtype, "value": float(value)}


def close(what, got, want, bound):
    """Compares with an error bound; both have the bound's shape or broadcast to it."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    wrong = ~(np.abs(got - want) <= bound)
    if not wrong.any():
        return None
    at = np.unravel_index(np.argmax(wrong), wrong.shape)
    return f"{what}{list(map(int, at))} is {got[at]!r}, not {want[at]!r} ({int(wrong.sum())} wrong)"


def product_bound(a, b, out):
    """Error of sums of products in single precision, in any order, and of one rounding."""
    a, b = np.abs(a).astype(np.float64), np.abs(b).astype(np.float64)
    exact = a @ b
    return exact * (a.shape[1] + 4) * SINGLE + exact * out + 1e-30


def vector_add():
    x, y = rng().standard_normal((2, 1500), np.float32)
    arguments = [buffer("f32", 1500, x), buffer("f32", 1500, y), buffer("f32", 1500, save=True),
                 scalar("i32", 1500)]
    return arguments, [], [2, 1, 1], lambda out: close("out", out[2], x + y, 0)


def softmax():
    rows, cols = 5, 781
    x = rng().standard_normal((rows, cols), np.float32)
    arguments = [buffer("f32", x.size, x), buffer("f32", x.size, save=True), scalar("i32", rows),
                 scalar("i32", cols), scalar("i32", cols)]

    def check(out):
        e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
        want = e / e.sum(1, keepdims=True)
        # The argument of ex2 has an error of one rounding of x log2(e), at most 2^-24 * 16.
        return close("out", out[1].reshape(x.shape), want, want * 2.0**-18)

    return arguments, [], [2, 1, 1], check


def operands(dtype, m, n, k):
    """Matrices A and B, their bits, and those of their buffers' type."""
    a, b = rng().standard_normal((m, k), np.float32), rng().standard_normal((k, n), np.float32)
    if dtype == "f16":
        a, b = a.astype(np.float16), b.astype(np.float16)
        return a.astype(np.float32), b.astype(np.float32), a, b, "f16"
    if dtype == "bf16":
        (a, ab), (b, bb) = bf16(a), bf16(b)
        return a, b, ab, bb, "bf16"
    if dtype == "tf32":
        # Values of tf32, so that how hardware rounds does not matter.
        a, b = ((v.view(np.uint32) & 0xFFFFE000).view(np.float32) for v in (a, b))
        return a, b, a, b, "f32"
    if dtype == "i8":
        a, b = (rng().integers(-128, 128, shape, np.int8) for shape in ((m, k), (k, n)))
        return a, b, a, b, "u8"
    if dtype == "f64":
        return a, b, a.astype(np.float64), b.astype(np.float64), "f64"
    table = E4M3 if dtype == "e4m3" else E5M2
    a, b = (rng().integers(0x20, 0x40, shape, np.uint8) | rng().integers(0, 2, shape, np.uint8) << 7
            for shape in ((m, k), (k, n)))
    return table[a], table[b], a, b, "u8"


def matmul(dtype, tile, leaky=False, half_sums=False):
    def setup():
        m, n, k = 130, 120, 144
        a, b, ab, bb, ty = operands(dtype, m, n, k)
        results = {"tf32": ("f32", SINGLE), "i8": ("i32", 0), "f64": ("f64", 0)}
        out_ty, out = results.get(dtype, ("f16", HALF))
        arguments = [buffer(ty, ab.size, ab), buffer(ty, bb.size, bb),
                     buffer(out_ty, m * n, save=True)]
        arguments += [scalar("i32", value) for value in (m, n, k, k, n, n)]
        grid = [-(-m // tile[0]) * -(-n // tile[1]), 1, 1]

        def check(saved):
            want = a.astype(np.float64) @ b.astype(np.float64)
            want = np.where(want >= 0, want, 0.01 * want) if leaky else want
            bound = 0 if dtype == "i8" else product_bound(a, b, out)
            if half_sums:
                # Every sum is rounded to f16, at most one for each of K.
                bound = (np.abs(a) @ np.abs(b)) * k * HALF
            return close("c", saved[2].reshape(m, n), want, bound)

        return arguments, [], grid, check

    return setup


def dropout():
    n, p = 2000, 0.25
    x = rng().standard_normal(n, np.float32)
    arguments = [buffer("f32", n, x), buffer("f32", n, save=True), scalar("i32", n),
                 scalar("f32", p), scalar("i32", 123)]

    def check(out):
        keep = philox_uniform(123, np.arange(n)) > np.float32(p)
        want = np.where(keep, x / np.float32(1 - p), 0)
        return close("out", out[1], want, np.abs(want) * 4 * SINGLE)

    return arguments, [], [2, 1, 1], check


def layer_norm():
    rows, n = 3, 1200
    x = rng().standard_normal((rows, n)).astype(np.float16)
    w, b = (rng().standard_normal(n).astype(np.float16) for _ in range(2))
    arguments = [buffer("f16", x.size, x), buffer("f16", x.size, save=True), buffer("f16", n, w),
                 buffer("f16", n, b), buffer("f32", rows, save=True),
                 buffer("f32", rows, save=True), scalar("i32", n), scalar("i32", n),
                 scalar("f32", 1e-5)]

    def check(out):
        v = x.astype(np.float64)
        mean, var = v.mean(1, keepdims=True), v.var(1, keepdims=True)
        rstd = 1 / np.sqrt(var + 1e-5)
        want = (v - mean) * rstd * w + b
        scale = np.abs(v - mean) * rstd * np.abs(w) + np.abs(b)
        return (close("y", out[1].reshape(x.shape), want, np.abs(want) * HALF + scale * n * SINGLE)
                or close("mean", out[4], mean[:, 0], np.abs(v).sum(1) * SINGLE * 2)
                or close("rstd", out[5], rstd[:, 0], rstd[:, 0] * n * SINGLE))

    return arguments, [], [rows, 1, 1], check


def layer_norm_backward():
    rows, n, group = 5, 200, 2
    x, dy = (rng().standard_normal((rows, n)).astype(np.float16) for _ in range(2))
    w = rng().standard_normal(n).astype(np.float16)
    v = x.astype(np.float64)
    mean, rstd = v.mean(1), 1 / np.sqrt(v.var(1) + 1e-5)
    zeros = np.zeros(2 * group, np.int32)
    arguments = [
        buffer("f16", x.size, save=True), buffer("f16", x.size, dy),
        buffer("f32", group * n, save=True), buffer("f32", group * n, save=True),
        buffer("f16", x.size, x), buffer("f16", n, w), buffer("f32", rows, mean.astype(np.float32)),
        buffer("f32", rows, rstd.astype(np.float32)), buffer("i32", zeros.size, zeros),
        scalar("i32", n), scalar("i32", n)]

    def check(out):
        g = dy.astype(np.float64)
        hat = (v - mean[:, None]) * rstd[:, None]
        wdy = g * w
        c1, c2 = (hat * wdy).mean(1, keepdims=True), wdy.mean(1, keepdims=True)
        dx = (wdy - (hat * c1 + c2)) * rstd[:, None]
        scale = (np.abs(wdy) + np.abs(hat * c1) + np.abs(c2)) * rstd[:, None]
        dw = out[2].reshape(group, n).sum(0, dtype=np.float64)
        db = out[3].reshape(group, n).sum(0, dtype=np.float64)
        return (close("dx", out[0].reshape(x.shape), dx, np.abs(dx) * HALF + scale * n * SINGLE)
                or close("dw", dw, (g * hat).sum(0), np.abs(g * hat).sum(0) * 8 * SINGLE)
                or close("db", db, g.sum(0), np.abs(g).sum(0) * 8 * SINGLE))

    return arguments, [], [rows, 1, 1], check


def attention(dtype, causal, rows):
    def setup():
        heads, n, d = 2, 256, 64
        scale = d**-0.5
        q, k, v = rng().standard_normal((3, heads, n, d), np.float32)
        if dtype == "f16":
            bits = [value.astype(np.float16) for value in (q, k, v)]
            q, k, v = (value.astype(np.float32) for value in bits)
        else:
            (q, *q_bits), (k, *k_bits), (v, *v_bits) = bf16(q), bf16(k), bf16(v)
            bits = [q_bits[0], k_bits[0], v_bits[0]]
        arguments = [buffer(dtype, q.size, value) for value in bits]
        arguments += [buffer(dtype, q.size, save=True), buffer("f32", heads * n, save=True),
                      scalar("f32", scale), scalar("i32", n * d), scalar("i32", n),
                      scalar("i32", heads)]

        def check(out):
            s = np.einsum("hid,hjd->hij", q.astype(np.float64), k) * scale
            if causal:
                s = np.where(np.tri(n, dtype=bool), s, -np.inf)
            top = s.max(-1, keepdims=True)
            p = np.exp(s - top)
            total = p.sum(-1, keepdims=True)
            want = np.einsum("hij,hjd->hid", p / total, v)
            lse = ((top + np.log(total)) / np.log(2))[..., 0]
            got = out[3].reshape(q.shape)
            got = from_bf16(got) if dtype == "bf16" else got
            unit = HALF if dtype == "f16" else BFLOAT
            # P is rounded to the operands' type, the result once more.
            bound = np.einsum("hij,hjd->hid", p / total, np.abs(v)) * (unit + 2.0**-14)
            return (close("o", got, want, bound + np.abs(want) * unit)
                    or close("lse", out[4].reshape(heads, n), lse, 2.0**-16))

        return arguments, [], [n // rows, heads, 1], check

    return setup


def asin():
    n = 1500
    x = rng().uniform(-1, 1, n).astype(np.float32)
    arguments = [buffer("f32", n, x), buffer("f32", n, save=True), scalar("i32", n)]
    # libdevice's documentation: at most 4 ulp.
    return arguments, [], [2, 1, 1], lambda out: close(
        "y", out[1], np.arcsin(x.astype(np.float64)), 4 * 2 * SINGLE * 1.6)


def grouped_gemm():
    shapes = [(128, 64, 96), (64, 128, 64)]
    a = [rng().standard_normal((m, k)).astype(np.float16) for m, _, k in shapes]
    b = [rng().standard_normal((k, n)).astype(np.float16) for _, n, k in shapes]
    buffers = [buffer("f16", value.size, value) for value in a + b]
    buffers += [buffer("f16", m * n, save=True) for m, n, _ in shapes]
    sizes = np.array(shapes, np.int32)
    lds = np.array([(k, n, n) for _, n, k in shapes], np.int32)
    arguments = [{"addresses": [0, 1]}, {"addresses": [2, 3]}, {"addresses": [4, 5]},
                 buffer("i32", sizes.size, sizes), buffer("i32", lds.size, lds), scalar("i32", 2)]

    def check(out):
        for at, (m, n, _) in enumerate(shapes):
            want = a[at].astype(np.float64) @ b[at].astype(np.float64)
            got = out[len(arguments) + 2 + 4 + at].reshape(m, n)
            wrong = close(f"c{at}", got, want, product_bound(a[at], b[at], HALF))
            if wrong:
                return wrong
        return None

    return arguments, buffers, [4, 1, 1], check


def tensor_matmul(blocks, box=64):
    def setup():
        m, n, k = 200, 144, 160
        a = rng().standard_normal((m, k)).astype(np.float16)
        b = rng().standard_normal((n, k)).astype(np.float16)
        buffers = [buffer("f16", a.size, a), buffer("f16", b.size, b),
                   buffer("f16", m * n, save=True)]

        def tensor(index, rows, columns):
            extent = {"tensor": index, "dims": [columns, rows], "box": [box, 128], "swizzle": 128}
            return [extent, scalar("i32", rows), scalar("i32", columns), scalar("i64", columns),
                    scalar("i64", 1)]

        arguments = tensor(0, m, k) + tensor(1, n, k) + tensor(2, m, n)
        arguments += [scalar("i32", value) for value in (m, n, k)]

        def check(out):
            want = a.astype(np.float64) @ b.T.astype(np.float64)
            got = out[len(arguments) + 2 + 2].reshape(m, n)
            return close("c", got, want, product_bound(a, b.T, HALF))

        return arguments, buffers, blocks, check

    return setup


def device_tensor_matmul():
    m, n, k = 128, 64, 192
    a = rng().standard_normal((m, k)).astype(np.float16)
    b = rng().standard_normal((n, k)).astype(np.float16)
    arguments = [buffer("f16", a.size, a), buffer("f16", b.size, b),
                 buffer("f16", m * n, save=True)]
    arguments += [scalar("i32", value) for value in (m, n, k)]
    want = a.astype(np.float64) @ b.T.astype(np.float64)
    return arguments, [], [2, 1, 1], lambda out: close(
        "c", out[2].reshape(m, n), want, product_bound(a, b.T, HALF))


def scaled(kind, vector):
    def setup():
        m, n, k = 128, 128, 256
        if kind == "e4m3":
            a, b = (rng().integers(0x20, 0x40, (rows, k), np.uint8) for rows in (m, n))
            x, y = E4M3[a], E4M3[b]
        else:
            codes = [rng().integers(0, 16, (rows, k), np.uint8) for rows in (m, n)]
            x, y = E2M1[codes[0]], E2M1[codes[1]]
            a, b = (value[:, ::2] | value[:, 1::2] << 4 for value in codes)
        low, high, table = (0x30, 0x48, E4M3) if vector == 16 else (
            122, 133, 2.0 ** (np.arange(256) - 127.0))
        sa, sb = (rng().integers(low, high, (rows, k // vector), np.uint8) for rows in (m, n))
        arguments = [buffer("u8", a.size, a), buffer("u8", sa.size, sa), buffer("u8", b.size, b),
                     buffer("u8", sb.size, sb), buffer("f32", m * n, save=True)]
        arguments += [scalar("i32", value) for value in (m, n, k)]
        x = x * np.repeat(table[sa], vector, 1)
        y = y * np.repeat(table[sb], vector, 1)
        return arguments, [], [1, 1, 1], lambda out: close(
            "c", out[4].reshape(m, n), x @ y.T, product_bound(x, y.T, SINGLE))

    return setup


def chain(size):
    def setup():
        a, b = (rng().integers(-2, 3, (size, size)).astype(np.float16) for _ in range(2))
        arguments = [buffer("f16", a.size, a), buffer("f16", b.size, b),
                     buffer("f16", a.size, save=True)]
        # Integers; the first product is exact in f16, the second is rounded once.
        first = a.astype(np.float64) @ b.astype(np.float64)
        want = (first @ b.astype(np.float64)).T
        return arguments, [], [1, 1, 1], lambda out: close(
            "c", out[2].reshape(a.shape), want, np.abs(want) * HALF)

    return setup


def atomics():
    n = 500
    start = [np.zeros(16, np.float16), np.full(16, 1e9, np.float32), np.full(16, -1, np.int64),
             np.zeros(16, np.int32)]
    kinds = ["f16", "f32", "i64", "i32"]
    arguments = [buffer(kind, 16, value, save=True) for kind, value in zip(kinds, start)]
    arguments.append(scalar("i32", n))
    at = np.arange(n)
    of = [at[at % 16 == part] for part in range(16)]

    def check(out):
        xors = [np.bitwise_xor.reduce(part * 77) for part in of]
        return (close("sum", out[0], [len(part) for part in of], 0)
                or close("min", out[1], [part.min() for part in of], 0)
                or close("max", out[2], [part.max() for part in of], 0)
                or close("xor", out[3], xors, 0))

    return arguments, [], [2, 1, 1], check


def add_to_tile():
    rows, columns = 32, 64
    x = rng().integers(-9, 9, (rows, columns)).astype(np.float32)
    start = rng().integers(-9, 9, (100, 128)).astype(np.float32)
    want = start.copy()
    for block in range(4):
        inside = min(rows, 100 - block * rows)
        want[block * rows:block * rows + inside, columns:] += x[:inside]
    arguments = [buffer("f32", x.size, x), buffer("f32", start.size, start, save=True)]
    return arguments, [], [4, 1, 1], lambda out: close(
        "out", out[1].reshape(start.shape), want, 0)


def cube():
    x = rng().integers(-99, 99, (8, 64, 64)).astype(np.float16)
    box = np.zeros((2, 32, 32), np.float16)
    box[:, :16, :24] = x[3:5, 48:, 40:]
    want = np.zeros_like(x)
    want[:2, 8:40, 16:48] = box
    arguments = [buffer("f16", x.size, x), buffer("f16", x.size, np.zeros_like(x), save=True)]
    return arguments, [], [1, 1, 1], lambda out: close("out", out[1].reshape(x.shape), want, 0)


def batch():
    a, b = (rng().integers(-4, 5, (4, 32, 32)).astype(np.float16) for _ in range(2))
    arguments = [buffer("f16", a.size, a), buffer("f16", b.size, b),
                 buffer("f32", a.size, save=True)]
    want = a.astype(np.float64) @ b.astype(np.float64)
    return arguments, [], [1, 1, 1], lambda out: close("c", out[2].reshape(a.shape), want, 0)


def gather_rows():
    x = rng().standard_normal((32, 32), np.float32)
    rows = rng().integers(0, 32, x.shape, np.int32)
    arguments = [buffer("f32", x.size, x), buffer("i32", rows.size, rows),
                 buffer("f32", x.size, save=True)]
    want = np.take_along_axis(x, rows, 0)
    return arguments, [], [1, 1, 1], lambda out: close("out", out[2].reshape(x.shape), want, 0)


def gather_tile():
    x = rng().standard_normal((100, 128)).astype(np.float16)
    rows = rng().permutation(100)[:32].astype(np.int32)
    want = np.zeros_like(x)
    want[rows, :64] = x[rows, 64:]
    arguments = [buffer("f16", x.size, x), buffer("i32", 32, rows),
                 buffer("f16", x.size, np.zeros_like(x), save=True)]
    return arguments, [], [1, 1, 1], lambda out: close("out", out[2].reshape(x.shape), want, 0)


def integers():
    n = 1000
    x = rng().integers(-2**31, 2**31, n, np.int32)
    y = rng().integers(-5000, 5000, n, np.int32)
    y[y == 0] = 3
    arguments = [buffer("i32", n, x), buffer("i32", n, y), buffer("i32", n, save=True),
                 buffer("i64", n, save=True), scalar("i32", n)]
    v, w = x.astype(np.int64), y.astype(np.int64)

    def divided(a, b):
        return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))

    def check(out):
        quotient = divided(v, w)
        want = quotient * 3 + (v - quotient * w) + ((v << 3).astype(np.int32) ^ (w >> 1))
        high = (x.view(np.uint32).astype(np.uint64) * np.uint64(12345) >> np.uint64(32))
        wide = divided(v * w, 7) + high.astype(np.int64)
        return (close("out", out[2], want.astype(np.int32), 0) or close("wide", out[3], wide, 0))

    return arguments, [], [2, 1, 1], check


def histogram():
    n, bins = 1500, 64
    x = rng().integers(0, bins, n, np.int32)
    arguments = [buffer("i32", n, x), buffer("i32", bins, np.zeros(bins, np.int32), save=True),
                 scalar("i32", n)]
    want = np.bincount(x, minlength=bins)
    return arguments, [], [2, 1, 1], lambda out: close("bins", out[1], want, 0)


def sort():
    x = rng().standard_normal((3, 256), np.float32)
    arguments = [buffer("f32", x.size, x), buffer("f32", x.size, save=True)]
    return arguments, [], [3, 1, 1], lambda out: close(
        "out", out[1].reshape(x.shape), np.sort(x, 1), 0)


def scan():
    x = rng().integers(-50, 50, (3, 512)).astype(np.float32)
    arguments = [buffer("f32", x.size, x), buffer("f32", x.size, save=True),
                 buffer("i32", 3, save=True)]
    return arguments, [], [3, 1, 1], lambda out: (
        close("out", out[1].reshape(x.shape), np.cumsum(x, 1, dtype=np.float64), 0)
        or close("argmax", out[2], x.argmax(1), 0))


def casts():
    n = 1024
    scale = 2.0 ** rng().integers(-20, 12, n)
    x = (rng().standard_normal(n, np.float32) * scale).astype(np.float32)
    arguments = [buffer("f32", n, x), buffer("u8", n, save=True), buffer("u8", n, save=True),
                 buffer("f16", n, save=True), buffer("u16", n, save=True),
                 buffer("f32", n, save=True)]
    four, five = nearest(E4M3, x), nearest(E5M2, x)

    def check(out):
        with np.errstate(over="ignore"):
            half = x.astype(np.float16)
        back = (E4M3[four] + E5M2[five]).astype(np.float32)
        return (close("e4m3", out[1], four, 0) or close("e5m2", out[2], five, 0)
                or close("f16", out[3].view(np.uint16), half.view(np.uint16), 0)
                or close("bf16", out[4], bf16(x)[1], 0) or close("back", out[5], back, 0))

    return arguments, [], [2, 1, 1], check
