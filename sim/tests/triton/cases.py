"""Every kernel with how it is compiled and run."""

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import kernels as K
from data import (
    add_to_tile, asin, atomics, attention, batch, casts, chain, cube, device_tensor_matmul,
    dropout, gather_rows, gather_tile, grouped_gemm, histogram, integers, layer_norm,
    layer_norm_backward, matmul, scaled, scan, softmax, sort, tensor_matmul, vector_add,
)

TARGETS = [80, 90, 100, 120]


class Case:
    """What to compile, what to run, and what comes out.

    `setup()` gives the arguments, the further buffers, the grid, and a function from the saved
    buffers to a text that says what is wrong, or None.
    """

    def __init__(self, name, fn, signature, constants, setup, warps=4, stages=3, only=TARGETS,
                 aligned=(), options=(), found=None):
        self.name, self.fn, self.signature, self.constants = name, fn, signature, constants
        self.setup, self.warps, self.stages, self.only = setup, warps, stages, only
        self.aligned, self.options = aligned, dict(options)
        # What the checks find, by target.
        self.found = found or {}

    def compile(self, target):
        names = self.fn.arg_names
        signature = {name: self.signature.get(name, "constexpr") for name in names}
        divisible = [["tt.divisibility", 16]]
        attributes = {
            (at,): divisible for at, name in enumerate(names)
            if signature[name].startswith("*") or name in self.aligned
        }
        source = ASTSource(self.fn, signature, self.constants, attributes)
        options = {"num_warps": self.warps, "num_stages": self.stages, **self.options}
        return triton.compile(source, target=GPUTarget("cuda", target, 32), options=options)


def product(ty, out="*fp16"):
    pointers = {"a": f"*{ty}", "b": f"*{ty}", "c": out}
    return pointers | dict.fromkeys(["M", "N", "K", "sam", "sbk", "scm"], "i32")


def tile(m, n, k, leaky=0, sums=tl.float32):
    sizes = {"BM": m, "BN": n, "BK": k, "GROUP": 8, "ACT": leaky, "ACC": sums}
    return {"sak": 1, "sbn": 1, "scn": 1} | sizes


def pointers(ty, *names):
    return dict.fromkeys(names, ty)


STRIDES = ("sam", "sbk", "scm", "K")
SIZES = {"M": "i32", "N": "i32", "K": "i32"}
ADD = pointers("*fp32", "x", "y", "out") | {"n": "i32"}
BOXES = {"da": "tensordesc<fp16[128,64]>", "db": "tensordesc<fp16[128,64]>",
         "dc": "tensordesc<fp16[128,128]>"} | SIZES
ATTENTION = {"lse": "*fp32", "scale": "fp32", "sh": "i32", "N": "i32", "H": "i32"}
SCALED = pointers("*u8", "a", "asc", "b", "bsc") | {"c": "*fp32"} | SIZES
SQUARE = {"BM": 128, "BN": 128}
RECENT = [90, 100, 120]

CASES = [
    Case("vector_add", K.vector_add, ADD, {"BLOCK": 1024}, vector_add),
    Case("softmax", K.softmax,
         pointers("*fp32", "x", "out") | pointers("i32", "rows", "cols", "stride"), {"BLOCK": 1024, "STAGES": 4}, softmax, warps=8),
    Case("matmul f16", K.matmul, product("fp16"), tile(128, 128, 64, 1),
         matmul("f16", (128, 128), True), warps=8, aligned=STRIDES),
    Case("matmul f16 64x64", K.matmul, product("fp16"), tile(64, 64, 32), matmul("f16", (64, 64)),
         stages=4, aligned=STRIDES),
    Case("matmul bf16", K.matmul, product("bf16"), tile(128, 64, 32), matmul("bf16", (128, 64)),
         aligned=STRIDES),
    Case("matmul tf32", K.matmul, product("fp32", "*fp32"), tile(64, 64, 32),
         matmul("tf32", (64, 64)), aligned=STRIDES),
    Case("matmul e4m3", K.matmul, product("fp8e4nv"), tile(128, 128, 64),
         matmul("e4m3", (128, 128)), only=RECENT, aligned=STRIDES),
    Case("matmul e5m2", K.matmul, product("fp8e5"), tile(64, 64, 64), matmul("e5m2", (64, 64)),
         aligned=STRIDES),
    Case("matmul i8", K.matmul, product("i8", "*i32"), tile(64, 64, 64, sums=tl.int32),
         matmul("i8", (64, 64)), aligned=STRIDES),
    Case("matmul f64", K.matmul, product("fp64", "*fp64"), tile(32, 32, 16, sums=tl.float64),
         matmul("f64", (32, 32)), aligned=STRIDES),
    Case("matmul f16 sums", K.matmul, product("fp16"), tile(64, 64, 32, sums=tl.float16),
         matmul("f16", (64, 64), half_sums=True), aligned=STRIDES,
         # Triton moves the accumulators to other registers before it waits for them. Its
         # assembler makes up for it; PTX leaves it undefined.
         found={90: "wgmma adds to accumulators that were copied before they were waited for"}),
    Case("matmul 256 wide", K.matmul, product("fp16"), tile(128, 256, 64),
         matmul("f16", (128, 256)), warps=8, aligned=STRIDES),
    Case("matmul 2 blocks", K.matmul, product("fp16"), tile(128, 128, 64),
         matmul("f16", (128, 128)), only=[90, 100], aligned=STRIDES,
         options={"num_ctas": 2}.items()),
    Case("chain 64", K.matmul_chain, pointers("*fp16", "a", "b", "c"), {"B": 64}, chain(64)),
    Case("chain 128", K.matmul_chain, pointers("*fp16", "a", "b", "c"), {"B": 128}, chain(128)),
    Case("batch", K.batch, pointers("*fp16", "a", "b") | {"c": "*fp32"}, {"B": 4, "N": 32},
         batch),
    Case("policies", K.policies, ADD, {"BLOCK": 1024}, vector_add),
    Case("atomics", K.atomics,
         {"half": "*fp16", "low": "*fp32", "high": "*i64", "bits": "*i32", "n": "i32"},
         {"BLOCK": 256}, atomics),
    Case("add to tile", K.add_to_tile, pointers("*fp32", "x", "out"), {"R": 32, "C": 64},
         add_to_tile, only=RECENT),
    Case("cube", K.cube, pointers("*fp16", "x", "out"), {"B": 32}, cube, only=RECENT),
    Case("gather rows", K.gather_rows,
         pointers("*fp32", "x", "out") | {"rows": "*i32"}, {"R": 32, "C": 32}, gather_rows),
    Case("gather tile", K.gather_tile, pointers("*fp16", "x", "out") | {"rows": "*i32"},
         {"R": 32, "C": 64}, gather_tile, only=[100]),
    Case("integers", K.integers, pointers("*i32", "x", "y", "out") | {"wide": "*i64", "n": "i32"},
         {"BLOCK": 512}, integers),
    Case("dropout", K.dropout,
         pointers("*fp32", "x", "out") | {"n": "i32", "p": "fp32", "seed": "i32"}, {"BLOCK": 1024},
         dropout),
    Case("layer_norm", K.layer_norm,
         pointers("*fp16", "x", "y", "w", "b") | pointers("*fp32", "mean", "rstd")
         | {"stride": "i32", "n": "i32", "eps": "fp32"}, {"BLOCK": 1024}, layer_norm,
         aligned=("stride",)),
    Case("layer_norm_backward", K.layer_norm_backward,
         pointers("*fp16", "dx", "dy", "x", "w") | pointers("*fp32", "dw", "db", "mean", "rstd")
         | {"lock": "*i32", "stride": "i32", "n": "i32"}, {"GROUP": 2, "BLOCK": 256},
         layer_norm_backward),
    Case("attention", K.attention, pointers("*fp16", "q", "k", "v", "o") | ATTENTION,
         {"BM": 128, "BN": 64, "D": 64, "CAUSAL": 0}, attention("f16", False, 128),
         aligned=("sh", "N")),
    Case("attention causal", K.attention, pointers("*bf16", "q", "k", "v", "o") | ATTENTION,
         {"BM": 64, "BN": 64, "D": 64, "CAUSAL": 1}, attention("bf16", True, 64), stages=2,
         aligned=("sh", "N")),
    Case("asin", K.asin, pointers("*fp32", "x", "y") | {"n": "i32"}, {"BLOCK": 1024}, asin),
    Case("grouped_gemm", K.grouped_gemm,
         pointers("*i64", "pa", "pb", "pc") | pointers("*i32", "sizes", "lds") | {"groups": "i32"},
         {"SMS": 4, "BM": 64, "BN": 64, "BK": 32}, grouped_gemm),
    Case("matmul tensor maps", K.matmul_tma, BOXES, SQUARE | {"BK": 64, "WS": False},
         tensor_matmul([2, 2, 1]), warps=8, only=RECENT),
    Case("matmul warp-specialised", K.matmul_tma, BOXES, SQUARE | {"BK": 64, "WS": True},
         tensor_matmul([2, 2, 1]), only=[100]),
    Case("matmul persistent", K.matmul_persistent, BOXES,
         SQUARE | {"BK": 64, "SMS": 2, "WS": False, "FLAT": True}, tensor_matmul([2, 1, 1]),
         warps=8, only=RECENT),
    Case("matmul persistent ws", K.matmul_persistent, BOXES,
         SQUARE | {"BK": 64, "SMS": 2, "WS": True, "FLAT": True}, tensor_matmul([2, 1, 1]),
         only=[100]),
    Case("matmul device tensor maps", K.matmul_device_tma, pointers("*fp16", "a", "b", "c") | SIZES,
         {"BM": 64, "BN": 64, "BK": 64}, device_tensor_matmul, only=RECENT, aligned=("K", "N")),
    Case("matmul mxfp8", K.matmul_scaled, SCALED | pointers("*fp8e4nv", "a", "b"),
         SQUARE | {"BK": 128, "FA": "e4m3", "FB": "e4m3", "DA": 1, "DB": 1, "VEC": 32},
         scaled("e4m3", 32), only=RECENT, aligned=("K",)),
    Case("matmul mxfp4", K.matmul_scaled, SCALED,
         SQUARE | {"BK": 128, "FA": "e2m1", "FB": "e2m1", "DA": 2, "DB": 2, "VEC": 32},
         scaled("e2m1", 32), aligned=("K",)),
    Case("matmul nvfp4", K.matmul_scaled, SCALED | pointers("*fp8e4nv", "asc", "bsc"),
         SQUARE | {"BK": 128, "FA": "e2m1", "FB": "e2m1", "DA": 2, "DB": 2, "VEC": 16},
         scaled("e2m1", 16), only=[100, 120], aligned=("K",)),
    Case("dependent launch", K.pdl_add, ADD, {"BLOCK": 1024}, vector_add, only=RECENT,
         options={"launch_pdl": True}.items()),
    Case("histogram", K.histogram, pointers("*i32", "x", "out") | {"n": "i32"},
         {"BLOCK": 1024, "BINS": 64}, histogram),
    Case("sort", K.sort_rows, pointers("*fp32", "x", "out"), {"BLOCK": 256}, sort),
    Case("scan", K.scan_rows, pointers("*fp32", "x", "out") | {"arg": "*i32"}, {"BLOCK": 512},
         scan),
    Case("casts", K.casts,
         {"x": "*fp32", "e4": "*fp8e4nv", "e5": "*fp8e5", "h": "*fp16", "b": "*bf16",
          "back": "*fp32"}, {"BLOCK": 512}, casts, only=RECENT),
]
