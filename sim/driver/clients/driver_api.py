"""The driver API from Python (cuda.bindings), with NVRTC: a reduction, a graph, a cooperative
launch that is too large, and what a wrong kernel does."""

import ctypes

import numpy as np
from cuda.bindings import driver, nvrtc

SOURCE = rb"""
extern "C" __global__ void total(const int* x, int n, int* out)
{
    __shared__ int sums[4];
    int sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
    for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_down_sync(~0u, sum, lane);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(out, sums[0] + sums[1] + sums[2] + sums[3]);
}

extern "C" __global__ void outside(int* x) { x[1 << 20] = 1; }
"""


def check(result):
    code, *values = result
    assert int(code) == 0, code
    return values[0] if len(values) == 1 else values


def compile_ptx(source, capability):
    program = check(nvrtc.nvrtcCreateProgram(source, b"kernels.cu", 0, [], []))
    options = [b"--gpu-architecture=compute_%d%d" % capability, b"-lineinfo"]
    check(nvrtc.nvrtcCompileProgram(program, len(options), options))
    ptx = b" " * check(nvrtc.nvrtcGetPTXSize(program))
    check(nvrtc.nvrtcGetPTX(program, ptx))
    return ptx


def arguments(*values):
    """Pointers to the values, and what keeps them alive."""
    pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    return ctypes.addressof(pointers), (pointers, values)


def main():
    check(driver.cuInit(0))
    device = check(driver.cuDeviceGet(0))
    check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(device))))
    attribute = driver.CUdevice_attribute
    capability = tuple(
        check(driver.cuDeviceGetAttribute(which, device))
        for which in (attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                      attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
    )
    module = check(driver.cuModuleLoadData(compile_ptx(SOURCE, capability)))
    total = check(driver.cuModuleGetFunction(module, b"total"))
    x = np.arange(1000, dtype=np.int32)
    at = check(driver.cuMemAlloc(x.nbytes))
    out = check(driver.cuMemAlloc(4))
    check(driver.cuMemcpyHtoD(at, x.ctypes.data, x.nbytes))
    stream = check(driver.cuStreamCreate(0))
    given, _kept = arguments(
        ctypes.c_uint64(int(at)), ctypes.c_int(x.size), ctypes.c_uint64(int(out))
    )

    # Captured, then launched twice: each time from 0.
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    check(driver.cuStreamBeginCapture(stream, mode))
    check(driver.cuMemsetD32Async(out, 0, 1, stream))
    check(driver.cuLaunchKernel(total, 3, 1, 1, 128, 1, 1, 0, stream, given, 0))
    graph = check(driver.cuStreamEndCapture(stream))
    ready = check(driver.cuGraphInstantiate(graph, 0))
    for _ in range(2):
        check(driver.cuGraphLaunch(ready, stream))
        check(driver.cuStreamSynchronize(stream))
        result = np.empty(1, np.int32)
        check(driver.cuMemcpyDtoH(result.ctypes.data, out, 4))
        assert result[0] == 3 * x.sum(), result

    code, = driver.cuLaunchCooperativeKernel(total, 1 << 20, 1, 1, 128, 1, 1, 0, stream, given)
    assert code == driver.CUresult.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, code

    # The launch is fine, the kernel is not: who waits hears of it.
    outside = check(driver.cuModuleGetFunction(module, b"outside"))
    given, _kept = arguments(ctypes.c_uint64(int(at)))
    check(driver.cuLaunchKernel(outside, 1, 1, 1, 1, 1, 1, 0, stream, given, 0))
    code, = driver.cuStreamSynchronize(stream)
    assert code == driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS, code
    print("the driver API ran")


if __name__ == "__main__":
    main()
