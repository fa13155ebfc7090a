"""CUDA C++ with cuda.core: a template compiled to PTX, launched in a stream, with its memory."""

import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = """
template <typename T>
__global__ void axpy(T a, const T* x, T* y, size_t n)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] += a * x[i];
}
"""


def main():
    device = Device()
    device.set_current()
    stream = device.create_stream()
    major, minor = device.compute_capability
    options = ProgramOptions(std="c++17", arch=f"sm_{major}{minor}")
    program = Program(SOURCE, code_type="c++", options=options)
    names = ("axpy<float>", "axpy<double>")
    module = program.compile("ptx", name_expressions=names)
    for name, dtype in zip(names, (np.float32, np.float64)):
        n = 777
        x = np.arange(n, dtype=dtype)
        place = device.memory_resource.allocate(2 * x.nbytes, stream=stream)
        base = int(place.handle)
        upload(base, x, stream)
        upload(base + x.nbytes, x, stream)
        config = LaunchConfig(grid=4, block=64)
        kernel = module.get_kernel(name)
        launch(stream, config, kernel, dtype(3), base, base + x.nbytes, np.uint64(n))
        result = download(base + x.nbytes, x, stream)
        np.testing.assert_array_equal(result, 4 * x)
        place.close(stream)
    stream.close()
    print("cuda.core ran on", device.name)


def upload(address, array, stream):
    from cuda.bindings import driver

    code, = driver.cuMemcpyHtoDAsync(address, array.ctypes.data, array.nbytes, stream.handle)
    assert code == 0, code


def download(address, like, stream):
    from cuda.bindings import driver

    result = np.empty_like(like)
    code, = driver.cuMemcpyDtoHAsync(result.ctypes.data, address, like.nbytes, stream.handle)
    assert code == 0, code
    stream.sync()
    return result


if __name__ == "__main__":
    main()
