#!/usr/bin/env python3
"""Compiles the launches of published.json that are Triton's, for GPUs that are not there.

    benches/estimates/triton_kernels.py published.json FOLDER

Writes for each configuration of each launch FOLDER/ROW.N.{cubin,ptx,json}: the machine code, what
it was assembled from, and how it is launched. Triton autotunes over the configurations; here the
one with the least estimate is taken. Needs Triton 3.0, whose wheel has an assembler: the figures
are of that time. The kernels are those of sim/tests/triton, after Triton's tutorials.
"""

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "sim/tests/triton"))
os.environ.setdefault("TRITON_CACHE_DIR", str(ROOT / "target/triton-3.0/cache"))

import kernels as K
import triton
from cases import ATTENTION, STRIDES, pointers, product, tile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, AttrsDescriptor

CAPABILITY = {"A100": 80, "H100": 90}
# Tiles, warps and stages of tutorial 03, and of tutorial 06 without its smaller ones.
GEMM = [(128, 256, 64, 8, 3), (64, 256, 32, 4, 4), (128, 128, 32, 4, 4), (128, 64, 32, 4, 4)]
FLASH = [(128, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 3), (128, 128, 8, 2)]


class Kernel:
    """A kernel, its types, its constants and how it is compiled."""

    def __init__(self, fn, signature, constants, warps=4, stages=3, aligned=()):
        self.fn, self.signature, self.constants = fn, signature, constants
        self.aligned, self.options = aligned, {"num_warps": warps, "num_stages": stages}

    def compile(self, capability):
        names = self.fn.arg_names
        signature = {at: self.signature[name] for at, name in enumerate(names)
                     if name in self.signature}
        divisible = tuple(at for at, ty in signature.items()
                          if ty.startswith("*") or names[at] in self.aligned)
        attributes = AttrsDescriptor(divisible_by_16=divisible)
        constants = {names.index(name): value for name, value in self.constants.items()}
        source = ASTSource(self.fn, signature, constants, attributes)
        return triton.compile(source, target=GPUTarget("cuda", capability, 32),
                              options=self.options)


def cdiv(a, b):
    return -(-a // b)


def i32(value):
    return {"i32": value}


def floats(count, bytes_each):
    return {"bytes": count * bytes_each}


def vector_add(n):
    kernel = Kernel(K.vector_add, pointers("*fp32", "x", "y", "out") | {"n": "i32"},
                    {"BLOCK": 1024}, aligned=("n",))
    yield kernel, [floats(n, 4)] * 3 + [i32(n)], [cdiv(n, 1024), 1, 1], 12 * n


def softmax(rows, columns, programs):
    """`programs` is the grid: what is resident."""
    block = 1 << (columns - 1).bit_length()
    signature = pointers("*fp32", "x", "out") | pointers("i32", "rows", "cols", "stride")
    kernel = Kernel(K.softmax, signature, {"BLOCK": block, "STAGES": 2}, warps=8,
                    aligned=("cols", "stride"))
    size = floats(rows * columns, 4)
    arguments = [size, size, i32(rows), i32(columns), i32(columns)]
    yield kernel, arguments, [programs, 1, 1], 8 * rows * columns


def gemm(m, n, k):
    for bm, bn, bk, warps, stages in GEMM:
        kernel = Kernel(K.matmul, product("fp16"), tile(bm, bn, bk), warps=warps,
                        stages=stages, aligned=STRIDES + ("M", "N"))
        arguments = [floats(m * k, 2), floats(k * n, 2), floats(m * n, 2)]
        arguments += [i32(size) for size in (m, n, k, k, n, n)]
        # Strides that are 1 are constants: those of columns of A and C, and of B.
        yield kernel, arguments, [cdiv(m, bm) * cdiv(n, bn), 1, 1], 2 * (m * k + k * n + m * n)


def attention(batch, heads, queries, head_dim):
    for bm, bn, warps, stages in FLASH:
        sizes = {"BM": bm, "BN": bn, "D": head_dim, "CAUSAL": 0}
        kernel = Kernel(K.attention, pointers("*fp16", "q", "k", "v", "o") | ATTENTION, sizes,
                        warps=warps, stages=stages, aligned=("sh", "N"))
        size = batch * heads * queries * head_dim
        arguments = [floats(size, 2)] * 4 + [floats(batch * heads * queries, 4), {"f32": 0.1}]
        arguments += [i32(queries * head_dim), i32(queries), i32(heads)]
        yield kernel, arguments, [queries // bm, batch * heads, 1], 8 * size


LAUNCHES = {"vector_add": vector_add, "softmax": softmax, "gemm": gemm, "attention": attention}


def main():
    rows = json.loads(Path(sys.argv[1]).read_text())["rows"]
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for row in rows:
        if "triton" not in row:
            continue
        name, sizes = row["triton"]["kernel"], row["triton"]["sizes"]
        for at, (kernel, arguments, grid, least) in enumerate(LAUNCHES[name](*sizes)):
            stem = folder / f"{row['id']}.{at}"
            compiled = kernel.compile(CAPABILITY[row["machine"]])
            stem.with_suffix(stem.suffix + ".cubin").write_bytes(compiled.asm["cubin"])
            stem.with_suffix(stem.suffix + ".ptx").write_text(compiled.asm["ptx"])
            launch = {
                "grid": grid, "threads": 32 * compiled.metadata.num_warps,
                "shared_bytes": compiled.metadata.shared, "bytes_min": least,
                "arguments": arguments,
            }
            stem.with_suffix(stem.suffix + ".json").write_text(json.dumps(launch))


main()
