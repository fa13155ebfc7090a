// Loads through the read-only path, of memory that the launch writes and of other.

typedef unsigned int word;

__device__ word load(const word* from)
{
    word out;
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(out) : "l"(from));
    return out;
}

template <bool FIXED> __device__ void reread(word* x, word* y)
{
    x[threadIdx.x] = threadIdx.x;
    __syncthreads();
    const word* from = FIXED ? y : x;
    const word value = load(from + (threadIdx.x + 32) % 64);
    __syncthreads();
    if (!FIXED) y[threadIdx.x] = value;
    else x[threadIdx.x] += value;
}
extern "C" __global__ void reread_stale(word* x, word* y) { reread<false>(x, y); }
extern "C" __global__ void reread_clean(word* x, word* y) { reread<true>(x, y); }
