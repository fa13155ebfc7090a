// Integers of several words, whose carries go between additions and subtractions.

typedef unsigned __int128 u128;

extern "C" __global__ void divide(const u128* a, const u128* b, u128* out, int count)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = a[i] / b[i];
}

extern "C" __global__ void modulo(const u128* a, const u128* b, u128* out, int count)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = a[i] % b[i];
}

extern "C" __global__ void divide_signed(
    const __int128* a, const __int128* b, __int128* out, int count)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = a[i] / b[i];
}

// The low 96 bits of a - b, and in the highest word whether a >= b: the carry of a + ~b + 1.
extern "C" __global__ void difference_96(const uint4* a, const uint4* b, uint4* out, int count)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    uint4 d;
    asm("sub.cc.u32 %0, %4, %7; subc.cc.u32 %1, %5, %8; subc.cc.u32 %2, %6, %9; addc.u32 %3, 0, 0;"
        : "=&r"(d.x), "=&r"(d.y), "=&r"(d.z), "=r"(d.w)
        : "r"(a[i].x), "r"(a[i].y), "r"(a[i].z), "r"(b[i].x), "r"(b[i].y), "r"(b[i].z));
    out[i] = d;
}
