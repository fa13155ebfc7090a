// Kernels whose threads work together: shared memory, barriers, lanes, atomics, local memory,
// switches and calls.
typedef unsigned int u32;

extern "C" __global__ void __launch_bounds__(256)
    row_softmax(const float* x, float* y, int columns)
{
    __shared__ float partial[32];
    const float* row = x + (long long)blockIdx.x * columns;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    float top = __int_as_float(0xff800000), sum = 0.f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) top = fmaxf(top, row[i]);
    for (int o = 16; o; o >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, o));
    if (lane == 0) partial[warp] = top;
    __syncthreads();
    top = lane < warps ? partial[lane] : __int_as_float(0xff800000);
    for (int o = 16; o; o >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, o));
    __syncthreads();
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(row[i] - top);
    for (int o = 16; o; o >>= 1) sum += __shfl_down_sync(~0u, sum, o);
    if (lane == 0) partial[warp] = sum;
    __syncthreads();
    sum = 0.f;
    for (int w = 0; w < warps; w++) sum += partial[w];
    for (int i = threadIdx.x; i < columns; i += blockDim.x)
        y[(long long)blockIdx.x * columns + i] = expf(row[i] - top) / sum;
}

#define TILE 16
extern "C" __global__ void __launch_bounds__(256)
    matmul(const float* a, const float* b, float* c, int m, int n, int k)
{
    __shared__ float as[TILE][TILE + 1], bs[TILE][TILE + 1];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
    float sum = 0.f;
    for (int at = 0; at < k; at += TILE) {
        as[y][x] = row < m && at + x < k ? a[row * k + at + x] : 0.f;
        bs[y][x] = column < n && at + y < k ? b[(at + y) * n + column] : 0.f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++) sum = fmaf(as[y][i], bs[i][x], sum);
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = sum;
}

extern "C" __global__ void histogram(const u32* x, u32* bins, int n)
{
    extern __shared__ u32 local[];
    for (int i = threadIdx.x; i < 64; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local[x[i] & 63], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 64; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}

extern "C" __global__ void votes(const int* x, u32* out)
{
    int v = x[threadIdx.x];
    u32 ballot = __ballot_sync(~0u, v > 3), sum = __reduce_add_sync(~0u, (u32)v);
    u32 match = __match_any_sync(~0u, v & 3);
    int any = __syncthreads_or(v == 7), count = __syncthreads_count(v & 1);
    u32* o = out + threadIdx.x * 6;
    o[0] = ballot, o[1] = sum, o[2] = match, o[3] = any, o[4] = count, o[5] = __activemask();
}

// A barrier of the whole grid, as persistent kernels have: every block must be resident.
extern "C" __global__ void grid_barrier(u32* arrived, u32* data, u32* out, int rounds)
{
    for (int round = 0; round < rounds; round++) {
        data[blockIdx.x] = round * 100 + blockIdx.x;
        __syncthreads();
        if (threadIdx.x == 0) {
            asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
            u32 seen, want = (round * 2 + 1) * gridDim.x;
            do {
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                             : "=r"(seen) : "l"(arrived) : "memory");
            } while (seen < want);
        }
        __syncthreads();
        if (threadIdx.x == 0) out[blockIdx.x] += data[(blockIdx.x + 1) % gridDim.x];
        __syncthreads();
        if (threadIdx.x == 0) {
            asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
            u32 seen, want = (round * 2 + 2) * gridDim.x;
            do {
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                             : "=r"(seen) : "l"(arrived) : "memory");
            } while (seen < want);
        }
        __syncthreads();
    }
}

// A spinlock that every lane takes.
extern "C" __global__ void spinlock(u32* lock, u32* count)
{
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0u, 1u) == 0u) {
            *(volatile u32*)count = *(volatile u32*)count + 1;
            __threadfence();
            atomicExch(lock, 0u);
            done = true;
        }
    }
}

// A spinlock that lanes wait for before they go on: the one that has it must not wait for the others.
extern "C" __global__ void spinlock_entered(u32* lock, u32* count)
{
    while (atomicCAS(lock, 0u, 1u) != 0u) {}
    *(volatile u32*)count = *(volatile u32*)count + 1;
    __threadfence();
    atomicExch(lock, 0u);
}

__device__ __noinline__ float polynomial(float x, int degree)
{
    float sum = 0.f;
    for (int i = 0; i <= degree; i++) sum = sum * x + (float)i;
    return sum;
}

extern "C" __global__ void calls(const float* x, float* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = polynomial(x[i], i % 7) + polynomial(x[i], 2);
}

extern "C" __global__ void switches(const u32* x, u32* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u32 v = x[i], r;
    switch (v & 7) {
    case 0: r = v * 3; break;
    case 1: r = v ^ 0x55; break;
    case 2: r = v + i; break;
    case 3: r = __popc(v); break;
    case 4: r = v >> 3; break;
    case 5: r = v / 7; break;
    case 6: r = ~v; break;
    default: r = 0; break;
    }
    y[i] = r;
}

// An array indexed by data: local memory.
extern "C" __global__ void local_array(const u32* x, u32* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u32 table[16];
    for (int j = 0; j < 16; j++) table[(x[i] + j * 5) & 15] = x[(i + j) % n];
    u32 sum = 0;
    for (int j = 0; j < 16; j++) sum = sum * 31 + table[(j + (x[i] >> 4)) & 15];
    y[i] = sum;
}

__constant__ float weights[4] = {0.5f, -1.25f, 2.f, 8.f};
__device__ u32 launches = 40;

extern "C" __global__ void variables(float* y, u32* seen)
{
    y[threadIdx.x] = weights[threadIdx.x & 3];
    if (threadIdx.x == 0) *seen = atomicAdd(&launches, 1u);
}

// Bytes and halves that neighbouring blocks write into one word.
extern "C" __global__ void bytes(unsigned char* out, int n)
{
    int i = threadIdx.x * gridDim.x + blockIdx.x;
    if (i < n) out[i] = (unsigned char)(i * 7);
}
