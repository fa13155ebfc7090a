"""Kernels in Triton's language, after those that its tutorials teach."""

import triton, triton.language as tl

@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    tl.store(out + at, tl.load(x + at, mask=m) + tl.load(y + at, mask=m), mask=m)

@triton.jit
def softmax(x, out, rows, cols, stride, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    start = tl.program_id(0)
    step = tl.num_programs(0)
    for row in tl.range(start, rows, step, num_stages=STAGES):
        at = tl.arange(0, BLOCK)
        m = at < cols
        v = tl.load(x + row * stride + at, mask=m, other=-float("inf"))
        v = v - tl.max(v, axis=0)
        e = tl.exp(v)
        tl.store(out + row * stride + at, e / tl.sum(e, axis=0), mask=m)

@triton.jit
def matmul(a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
           ACT: tl.constexpr, ACC: tl.constexpr):
    pid = tl.program_id(0)
    nm = tl.cdiv(M, BM)
    nn = tl.cdiv(N, BN)
    per = GROUP * nn
    g = pid // per
    first = g * GROUP
    size = min(nm - first, GROUP)
    pm = first + (pid % per) % size
    pn = (pid % per) // size
    om = (pm * BM + tl.arange(0, BM)) % M
    on = (pn * BN + tl.arange(0, BN)) % N
    ok = tl.arange(0, BK)
    pa = a + om[:, None] * sam + ok[None, :] * sak
    pb = b + ok[:, None] * sbk + on[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=ACC)
    for k in range(0, tl.cdiv(K, BK)):
        ta = tl.load(pa, mask=ok[None, :] < K - k * BK, other=0.0)
        tb = tl.load(pb, mask=ok[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(ta, tb, acc, out_dtype=ACC)
        pa += BK * sak
        pb += BK * sbk
    if ACT:
        acc = tl.where(acc >= 0, acc, 0.01 * acc)
    out = acc.to(c.dtype.element_ty)
    cm = pm * BM + tl.arange(0, BM)
    cn = pn * BN + tl.arange(0, BN)
    inside = (cm[:, None] < M) & (cn[None, :] < N)
    tl.store(c + scm * cm[:, None] + scn * cn[None, :], out, mask=inside)

@triton.jit
def dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    v = tl.load(x + at, mask=m)
    keep = tl.rand(seed, at) > p
    tl.store(out + at, tl.where(keep, v / (1 - p), 0.0), mask=m)

@triton.jit
def layer_norm(x, y, w, b, mean, rstd, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x += row * stride
    y += row * stride
    s = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, n, BLOCK):
        at = off + tl.arange(0, BLOCK)
        s += tl.load(x + at, mask=at < n, other=0.).to(tl.float32)
    mu = tl.sum(s, axis=0) / n
    v = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, n, BLOCK):
        at = off + tl.arange(0, BLOCK)
        t = tl.load(x + at, mask=at < n, other=0.).to(tl.float32)
        t = tl.where(at < n, t - mu, 0.)
        v += t * t
    r = 1 / tl.sqrt(tl.sum(v, axis=0) / n + eps)
    tl.store(mean + row, mu)
    tl.store(rstd + row, r)
    for off in range(0, n, BLOCK):
        at = off + tl.arange(0, BLOCK)
        m = at < n
        t = tl.load(x + at, mask=m, other=0.).to(tl.float32)
        tl.store(y + at, (t - mu) * r * tl.load(w + at, mask=m) + tl.load(b + at, mask=m), mask=m)

@triton.jit
def layer_norm_backward(dx, dy, dw, db, x, w, mean, rstd, lock, stride, n,
                        GROUP: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    m = at < n
    x += row * stride
    dy += row * stride
    dx += row * stride
    id = row % GROUP
    lock += id
    count = lock + GROUP
    dw = dw + id * n + at
    db = db + id * n + at
    tx = tl.load(x + at, mask=m, other=0).to(tl.float32)
    tdy = tl.load(dy + at, mask=m, other=0).to(tl.float32)
    tw = tl.load(w + at, mask=m).to(tl.float32)
    mu = tl.load(mean + row)
    r = tl.load(rstd + row)
    xh = (tx - mu) * r
    wdy = tw * tdy
    xh = tl.where(m, xh, 0.)
    wdy = tl.where(m, wdy, 0.)
    c1 = tl.sum(xh * wdy, axis=0) / n
    c2 = tl.sum(wdy, axis=0) / n
    tl.store(dx + at, (wdy - (xh * c1 + c2)) * r, mask=m)
    pw = tdy * xh
    pb = tdy
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    seen = tl.load(count)
    if seen == 0:
        tl.atomic_xchg(count, 1)
    else:
        pw += tl.load(dw, mask=m)
        pb += tl.load(db, mask=m)
    tl.store(dw, pw, mask=m)
    tl.store(db, pb, mask=m)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)

@triton.jit
def attention(q, k, v, o, lse, scale, sh, N, H,
              BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr):
    pid = tl.program_id(0)
    head = tl.program_id(1)
    q += head * sh
    k += head * sh
    v += head * sh
    o += head * sh
    om = pid * BM + tl.arange(0, BM)
    on = tl.arange(0, BN)
    od = tl.arange(0, D)
    tq = tl.load(q + om[:, None] * D + od[None, :])
    m = tl.zeros([BM], dtype=tl.float32) - float("inf")
    l = tl.zeros([BM], dtype=tl.float32) + 1.0
    acc = tl.zeros([BM, D], dtype=tl.float32)
    qk_scale = scale * 1.44269504
    hi = N
    if CAUSAL:
        hi = (pid + 1) * BM
    for start in range(0, hi, BN):
        tk = tl.load(k + (start + on)[None, :] * D + od[:, None])
        s = tl.dot(tq, tk)
        if CAUSAL:
            s = s * qk_scale + tl.where(om[:, None] >= (start + on)[None, :], 0, -1.0e6)
            mn = tl.maximum(m, tl.max(s, 1))
            s -= mn[:, None]
        else:
            mn = tl.maximum(m, tl.max(s, 1) * qk_scale)
            s = s * qk_scale - mn[:, None]
        p = tl.math.exp2(s)
        alpha = tl.math.exp2(m - mn)
        l = l * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        tv = tl.load(v + (start + on)[:, None] * D + od[None, :])
        acc = tl.dot(p.to(tv.dtype), tv, acc)
        m = mn
    # l starts with 1 whose correction is exp2(-inf) = 0
    m += tl.math.log2(l)
    tl.store(lse + head * N + om, m)
    tl.store(o + om[:, None] * D + od[None, :], (acc / l[:, None]).to(o.dtype.element_ty))

@triton.jit
def asin(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    v = tl.load(x + at, mask=m)
    v = tl.extra.cuda.libdevice.asin(v)
    tl.store(y + at, v, mask=m)

@triton.jit
def grouped_gemm(pa, pb, pc, sizes, lds, groups, SMS: tl.constexpr,
                 BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile = tl.program_id(0)
    last = 0
    for g in range(groups):
        gm = tl.load(sizes + g * 3)
        gn = tl.load(sizes + g * 3 + 1)
        gk = tl.load(sizes + g * 3 + 2)
        nm = tl.cdiv(gm, BM)
        nn = tl.cdiv(gn, BN)
        count = nm * nn
        while tile >= last and tile < last + count:
            lda = tl.load(lds + g * 3)
            ldb = tl.load(lds + g * 3 + 1)
            ldc = tl.load(lds + g * 3 + 2)
            a = tl.load(pa + g).to(tl.pointer_type(tl.float16))
            b = tl.load(pb + g).to(tl.pointer_type(tl.float16))
            c = tl.load(pc + g).to(tl.pointer_type(tl.float16))
            t = tile - last
            om = t // nn * BM + tl.arange(0, BM)
            on = t % nn * BN + tl.arange(0, BN)
            ok = tl.arange(0, BK)
            qa = a + om[:, None] * lda + ok[None, :]
            qb = b + ok[:, None] * ldb + on[None, :]
            acc = tl.zeros((BM, BN), dtype=tl.float32)
            for kk in range(0, tl.cdiv(gk, BK)):
                tl.multiple_of(qa, [16, 16])
                tl.multiple_of(qb, [16, 16])
                acc += tl.dot(tl.load(qa), tl.load(qb))
                qa += BK
                qb += BK * ldb
            tl.store(c + om[:, None] * ldc + on[None, :], acc.to(tl.float16))
            tile += SMS
        last = last + count

@triton.jit
def matmul_tma(da, db, dc, M, N, K,
               BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WS: tl.constexpr):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, tl.cdiv(K, BK), warp_specialize=WS):
        a = da.load([pm * BM, k * BK])
        b = db.load([pn * BN, k * BK])
        acc = tl.dot(a, b.T, acc)
    dc.store([pm * BM, pn * BN], acc.to(tl.float16))

@triton.jit
def matmul_persistent(da, db, dc, M, N, K,
               BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SMS: tl.constexpr,
               WS: tl.constexpr, FLAT: tl.constexpr):
    nm = tl.cdiv(M, BM)
    nn = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), nm * nn, SMS, flatten=FLAT, warp_specialize=WS):
        pm = tile // nn
        pn = tile % nn
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, tl.cdiv(K, BK)):
            a = da.load([pm * BM, k * BK])
            b = db.load([pn * BN, k * BK])
            acc = tl.dot(a, b.T, acc)
        dc.store([pm * BM, pn * BN], acc.to(tl.float16))

@triton.jit
def matmul_device_tma(a, b, c, M, N, K,
               BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    da = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    db = tl.make_tensor_descriptor(b, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    dc = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        x = da.load([pm * BM, k * BK])
        y = db.load([pn * BN, k * BK])
        acc = tl.dot(x, y.T, acc)
    dc.store([pm * BM, pn * BN], acc.to(tl.float16))

@triton.jit
def matmul_scaled(a, asc, b, bsc, c, M, N, K,
               BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FA: tl.constexpr,
               FB: tl.constexpr,
               DA: tl.constexpr, DB: tl.constexpr, VEC: tl.constexpr):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    om = pm * BM + tl.arange(0, BM)
    on = pn * BN + tl.arange(0, BN)
    oka = tl.arange(0, BK // DA)
    okb = tl.arange(0, BK // DB)
    os = tl.arange(0, BK // VEC)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(a + om[:, None] * (K // DA) + (k * (BK // DA) + oka)[None, :])
        y = tl.load(b + on[:, None] * (K // DB) + (k * (BK // DB) + okb)[None, :])
        sx = tl.load(asc + om[:, None] * (K // VEC) + (k * (BK // VEC) + os)[None, :])
        sy = tl.load(bsc + on[:, None] * (K // VEC) + (k * (BK // VEC) + os)[None, :])
        acc = tl.dot_scaled(x, sx, FA, y.T, sy, FB, acc)
    tl.store(c + om[:, None] * N + on[None, :], acc)

@triton.jit
def pdl_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    tl.extra.cuda.gdc_wait()
    v = tl.load(x + at, mask=m) + tl.load(y + at, mask=m)
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(out + at, v, mask=m)

@triton.jit
def histogram(x, out, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0)
    h = tl.histogram(v, BINS, mask=at < n)
    tl.atomic_add(out + tl.arange(0, BINS), h)

@triton.jit
def sort_rows(x, out, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    tl.store(out + row * BLOCK + at, tl.sort(tl.load(x + row * BLOCK + at)))

@triton.jit
def scan_rows(x, out, arg, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * BLOCK + at)
    tl.store(out + row * BLOCK + at, tl.cumsum(v, 0))
    tl.store(arg + row, tl.argmax(v, 0))

@triton.jit
def casts(x, e4, e5, h, b, back, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at)
    f4 = v.to(tl.float8e4nv)
    f5 = v.to(tl.float8e5)
    tl.store(e4 + at, f4)
    tl.store(e5 + at, f5)
    tl.store(h + at, v.to(tl.float16))
    tl.store(b + at, v.to(tl.bfloat16))
    tl.store(back + at, f4.to(tl.float32) + f5.to(tl.float32))


@triton.jit
def matmul_chain(a, b, c, B: tl.constexpr):
    at = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    x = tl.load(a + at)
    y = tl.load(b + at)
    first = tl.dot(x, y)
    second = tl.dot(first.to(tl.float16), y)
    tl.store(c + at, tl.trans(second).to(tl.float16))


@triton.jit
def policies(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    v = tl.load(x + at, mask=m, eviction_policy="evict_first")
    w = tl.load(y + at, mask=m, eviction_policy="evict_last")
    tl.store(out + at, v + w, mask=m, cache_modifier=".cs")


@triton.jit
def atomics(half, low, high, bits, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    tl.atomic_add(half + at % 16, 1.0, mask=m)
    tl.atomic_min(low + at % 16, at.to(tl.float32), mask=m)
    tl.atomic_max(high + at % 16, at.to(tl.int64), mask=m)
    tl.atomic_xor(bits + at % 16, at * 77, mask=m, sem="relaxed")


@triton.jit
def add_to_tile(x, out, R: tl.constexpr, C: tl.constexpr):
    tile = tl.make_tensor_descriptor(out, shape=[100, 128], strides=[128, 1], block_shape=[R, C])
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    tile.atomic_add([tl.program_id(0) * R, C], tl.load(x + at))


@triton.jit
def cube(x, out, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[8, 64, 64], strides=[4096, 64, 1],
                                       block_shape=[2, B, B])
    target = tl.make_tensor_descriptor(out, shape=[8, 64, 64], strides=[4096, 64, 1],
                                       block_shape=[2, B, B])
    target.store([0, 8, 16], source.load([3, 48, 40]))


@triton.jit
def batch(a, b, c, B: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    at = tl.arange(0, B)[:, None, None] * N * N + i[None, :, None] * N + i[None, None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


@triton.jit
def gather_rows(x, rows, out, R: tl.constexpr, C: tl.constexpr):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    tl.store(out + at, tl.gather(tl.load(x + at), tl.load(rows + at), 0))


@triton.jit
def integers(x, y, out, wide, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < n
    v = tl.load(x + at, mask=m)
    w = tl.load(y + at, mask=m, other=1)
    tl.store(out + at, (v // w) * 3 + v % w + ((v << 3) ^ (w >> 1)), mask=m)
    tl.store(wide + at, v.to(tl.int64) * w // 7 + tl.umulhi(v.to(tl.uint32), 12345), mask=m)


@triton.jit
def gather_tile(x, rows, out, R: tl.constexpr, C: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[100, 128], strides=[128, 1], block_shape=[1, C])
    target = tl.make_tensor_descriptor(out, shape=[100, 128], strides=[128, 1],
                                       block_shape=[1, C])
    at = tl.load(rows + tl.arange(0, R))
    target.scatter(source.gather(at, C), at, 0)
