// Kernels of many blocks, whose findings and counts must not depend on how many workers run them.
// What threads read says how often they loop.

typedef unsigned int u32;

__device__ u32 turned(u32 value)
{
    u32 out = value;
#pragma unroll 1
    for (u32 i = 0; i < value % 17; i++) out = out * 1664525u + 1013904223u;
    return out;
}

// Blocks share nothing.
extern "C" __global__ void apart_clean(const u32* x, u32* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = turned(x[i]);
}

// Each block reads what the next one writes.
extern "C" __global__ void ahead_racy(u32* x, u32*)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, count = gridDim.x * blockDim.x;
    x[i] = turned(x[(i + blockDim.x) % count]);
}

// The same, of bytes that only the launch writes.
extern "C" __global__ void unwritten_racy(const u32* x, u32* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, count = gridDim.x * blockDim.x;
    y[i] = turned(x[i]) + y[(i + blockDim.x) % count];
}

// Every block stores the same value to one place, which is harmless.
extern "C" __global__ void marked_clean(const u32* x, u32* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i + 64] = turned(x[i]);
    if (threadIdx.x == 0) y[0] = 1;
}

// Threads of a block race, in every third block.
extern "C" __global__ void shared_racy(const u32* x, u32* y)
{
    __shared__ u32 s[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = turned(x[i]);
    if (blockIdx.x % 3) __syncthreads();
    y[i] = s[255 - threadIdx.x];
}

// Two blocks access what is not theirs, of which the first is reported.
extern "C" __global__ void beyond_racy(const u32* x, u32* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = turned(x[i]);
    if (blockIdx.x == 41 || blockIdx.x == 11) y[i + (1 << 20)] = 1;
}

// Blocks take their work from a counter.
extern "C" __global__ void taken_clean(u32* x, u32* y)
{
    __shared__ u32 mine;
    if (threadIdx.x == 0) mine = atomicAdd(y, 1u);
    __syncthreads();
    x[mine * blockDim.x + threadIdx.x] = turned(x[mine * blockDim.x + threadIdx.x]);
}
