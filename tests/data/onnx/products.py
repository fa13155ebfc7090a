"""Rules of ONNX's nodes that multiply matrices: what `extract.py` makes of them.

A transposed operand is the same array with its strides swapped: the tests lay it out so.
"""

import numpy as np

NARROW = {"i8": np.int8, "u8": np.uint8}


def transposed(operand):
    """The operand with rows for columns, lying in memory as it did."""
    rows, columns = operand.dims
    operand.dims, operand.strides = [columns, rows], [1, columns]
    operand.array = operand.array.T
    return operand


def matmul(graph, inputs, attributes):
    a, b = inputs
    rank = max(2, len(a.dims), len(b.dims))
    for operand, is_column in [(a, False), (b, True)]:
        dims = [1] * (rank - len(operand.dims)) + operand.dims
        # A vector is one row of the first operand or one column of the second.
        if operand.array.ndim == 1 and is_column:
            dims[-2:] = [dims[-1], 1]
        operand.dims = dims
    return graph.matmul(a, b, dtype=a.dtype)


def gemm(graph, inputs, attributes):
    a, b, c = (list(inputs) + [None])[:3]
    a = transposed(a) if attributes.get("transA", 0) else a
    b = transposed(b) if attributes.get("transB", 0) else b
    product = graph.matmul(a, b)
    alpha, beta = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)
    if c is None:
        return graph.op("identity", product, alpha1=alpha)
    return graph.op("add", product, c, alpha1=alpha, alpha2=beta)


def shifted(graph, x, zero):
    """Differences to a zero point, in the type of 8 bits that holds them."""
    exact = x.array.astype(int) - zero.array.astype(int)
    holds = lambda kind: np.iinfo(kind).min <= exact.min() and exact.max() <= np.iinfo(kind).max
    return graph.op("sub", x, zero, dtype=next(name for name in NARROW if holds(NARROW[name])))


def matmul_integer(graph, inputs, attributes):
    a, b, zero_a, zero_b = inputs
    return graph.matmul(shifted(graph, a, zero_a), shifted(graph, b, zero_b), dtype="i32")


RULES = {"Gemm": gemm, "MatMul": matmul, "MatMulInteger": matmul_integer}
