// What programs do with the runtime: variables, templates, shared memory, streams, managed memory,
// atomics, printf, assertions of the grid, occupancy.
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define WORKS(call)                                                                            \
    do {                                                                                       \
        cudaError_t code = (call);                                                            \
        if (code != cudaSuccess) {                                                            \
            std::printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(code));         \
            std::exit(1);                                                                      \
        }                                                                                      \
    } while (0)
#define HOLDS(what)                                                                            \
    do {                                                                                       \
        if (!(what)) {                                                                         \
            std::printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #what);               \
            std::exit(1);                                                                      \
        }                                                                                      \
    } while (0)

__constant__ float factor = 2.0f;
__device__ unsigned launches;
__managed__ int seen[2] = {5, 6};

template <typename T>
__global__ void scale(T* y, const T* x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = static_cast<T>(factor) * x[i];
    }
    if (i == 0) {
        launches += 1;
        seen[1] += seen[0];
    }
}

template <int THREADS>
__global__ void sum(float* total, const float* x, int n)
{
    __shared__ float parts[THREADS];
    float own = 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) {
        own += x[i];
    }
    parts[threadIdx.x] = own;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            parts[threadIdx.x] += parts[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        atomicAdd(total, parts[0]);
    }
}

__global__ void neighbours(int* values, int n)
{
    cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    int i = static_cast<int>(grid.thread_rank());
    if (i < n) {
        values[i] = i;
    }
    grid.sync();
    int next = i < n ? values[(i + 1) % n] : 0;
    grid.sync();
    if (i < n) {
        values[i] += next;
    }
}

__global__ void dynamic(int* out)
{
    extern __shared__ int room[];
    room[threadIdx.x] = static_cast<int>(threadIdx.x);
    __syncthreads();
    out[threadIdx.x] = room[blockDim.x - 1 - threadIdx.x];
}

__global__ void greet() { std::printf("block %d\n", blockIdx.x); }

template <typename T>
static void scales(cudaStream_t stream)
{
    const int n = 1000;
    std::vector<T> from(n), back(n);
    for (int i = 0; i < n; i++) {
        from[i] = static_cast<T>(i);
    }
    T *x, *y;
    WORKS(cudaMallocAsync(&x, n * sizeof(T), stream));
    WORKS(cudaMallocAsync(&y, n * sizeof(T), stream));
    WORKS(cudaMemcpyAsync(x, from.data(), n * sizeof(T), cudaMemcpyHostToDevice, stream));
    scale<<<(n + 127) / 128, 128, 0, stream>>>(y, x, n);
    WORKS(cudaGetLastError());
    WORKS(cudaMemcpyAsync(back.data(), y, n * sizeof(T), cudaMemcpyDeviceToHost, stream));
    WORKS(cudaFreeAsync(x, stream));
    WORKS(cudaFreeAsync(y, stream));
    WORKS(cudaStreamSynchronize(stream));
    for (int i = 0; i < n; i++) {
        HOLDS(back[i] == static_cast<T>(3 * i));
    }
}

int main()
{
    float by = 3;
    WORKS(cudaMemcpyToSymbol(factor, &by, sizeof by));
    HOLDS(seen[0] == 5 && seen[1] == 6);
    seen[0] = 10;
    cudaStream_t stream;
    WORKS(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    scales<float>(stream);
    scales<double>(stream);
    scales<int>(nullptr);
    unsigned count = 0;
    WORKS(cudaMemcpyFromSymbol(&count, launches, sizeof count));
    HOLDS(count == 3 && seen[1] == 36);

    float *x, *total;
    WORKS(cudaMallocManaged(&x, 5000 * sizeof(float)));
    WORKS(cudaMallocManaged(&total, sizeof(float)));
    *total = 0;
    for (int i = 0; i < 5000; i++) {
        x[i] = 1;
    }
    int blocks = 0, threads = 0;
    WORKS(cudaOccupancyMaxPotentialBlockSize(&blocks, &threads, sum<256>, 0, 256));
    HOLDS(blocks > 0 && threads > 0 && threads <= 256);
    sum<256><<<7, 256>>>(total, x, 5000);
    WORKS(cudaDeviceSynchronize());
    HOLDS(*total == 5000);

    const int n = 200;
    int *values, back[n], size = n;
    WORKS(cudaMalloc(&values, sizeof back));
    void* given[] = {&values, &size};
    WORKS(cudaLaunchCooperativeKernel(neighbours, dim3(4), dim3(64), given));
    WORKS(cudaMemcpy(back, values, sizeof back, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        HOLDS(back[i] == i + (i + 1) % n);
    }
    dynamic<<<1, 200, 200 * sizeof(int)>>>(values);
    WORKS(cudaMemcpy(back, values, sizeof back, cudaMemcpyDeviceToHost));
    HOLDS(back[0] == 199 && back[199] == 0);
    dynamic<<<1, 2000>>>(values);
    HOLDS(cudaGetLastError() == cudaErrorInvalidConfiguration);
    greet<<<2, 1>>>();
    WORKS(cudaDeviceSynchronize());
    WORKS(cudaFree(values));
    WORKS(cudaStreamDestroy(stream));
    std::printf("done\n");
    return 0;
}
