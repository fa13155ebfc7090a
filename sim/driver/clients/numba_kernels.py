"""Kernels written in Python with numba-cuda: a sum of vectors, a reduction in shared memory, a grid
that waits for all its blocks, atomics, output of kernels, streams and events."""

import numpy as np
from numba import cuda, float32


@cuda.jit
def add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]


@cuda.jit
def block_sums(x, out):
    shared = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    shared[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    step = 64
    while step > 0:
        if t < step:
            shared[t] += shared[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def rows_in_turn(matrix):
    """Each row is the one before, turned around, plus 1: all blocks wait for it."""
    column = cuda.grid(1)
    grid = cuda.cg.this_grid()
    for row in range(1, matrix.shape[0]):
        matrix[row, column] = matrix[row - 1, matrix.shape[1] - 1 - column] + 1
        grid.sync()


@cuda.jit
def histogram(values, counts):
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(counts, values[i] % counts.size, 1)


@cuda.jit
def say():
    print("block", cuda.blockIdx.x, "thread", cuda.threadIdx.x)


def main():
    n = 1000
    x = np.arange(n, dtype=np.float32)
    out = np.zeros_like(x)
    add[(n + 127) // 128, 128](x, 2 * x, out)
    np.testing.assert_array_equal(out, 3 * x)

    sums = np.zeros(8, np.float32)
    block_sums[8, 128](x, sums)
    padded = np.concatenate([x, np.zeros(24, np.float32)])
    np.testing.assert_array_equal(sums, padded.reshape(8, 128).sum(axis=1))

    matrix = np.zeros((9, 128), np.int32)
    matrix[0] = np.arange(128)
    rows_in_turn[4, 32](matrix)
    np.testing.assert_array_equal(matrix[8], np.arange(128) + 8)
    np.testing.assert_array_equal(matrix[7], np.arange(127, -1, -1) + 7)

    values = (np.arange(5000) * 7919 % 1013).astype(np.int32)
    counts = np.zeros(16, np.int32)
    histogram[40, 128](values, counts)
    np.testing.assert_array_equal(counts, np.bincount(values % 16, minlength=16))

    stream, start, end = cuda.stream(), cuda.event(), cuda.event()
    start.record(stream)
    on_device = cuda.to_device(x, stream=stream)
    result = cuda.device_array_like(on_device, stream=stream)
    add[8, 128, stream](on_device, on_device, result)
    end.record(stream)
    stream.synchronize()
    np.testing.assert_array_equal(result.copy_to_host(), 2 * x)
    assert cuda.event_elapsed_time(start, end) >= 0

    say[2, 2]()
    cuda.synchronize()
    print("numba kernels ran on", cuda.get_current_device().name)


if __name__ == "__main__":
    main()
