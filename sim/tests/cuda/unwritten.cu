// Kernels that read what nobody wrote, and their correct forms; barriers that disagree.
typedef unsigned int u32;

// A register that one path does not write.
extern "C" __global__ void register_read(const u32* x, u32* y)
{
    u32 v = x[threadIdx.x], r;
    asm volatile("{ .reg .pred p; .reg .b32 u;\n"
                 "setp.ne.u32 p, %1, 0;\n"
                 "@p mov.b32 u, 7;\n"
                 "add.u32 %0, u, 1; }" : "=r"(r) : "r"(v));
    y[threadIdx.x] = r;
}

// Shared memory of which only the first `count` words are written.
extern "C" __global__ void shared_read(const u32* x, u32* y, int count)
{
    __shared__ u32 s[64];
    int t = threadIdx.x;
    if (t < count) s[t] = x[t];
    __syncthreads();
    y[t] = s[t];
}

// Half words of shared memory.
extern "C" __global__ void shared_halves(const unsigned short* x, u32* y, int count)
{
    __shared__ unsigned short s[64];
    int t = threadIdx.x;
    if (t < count) s[t] = x[t];
    __syncthreads();
    y[t] = s[t];
}

// Global memory; nothing is wrong with the kernel.
extern "C" __global__ void copy(const u32* x, u32* y) { y[threadIdx.x] = x[threadIdx.x] + 1; }

// An array of each thread's own, of which `count` words are written.
extern "C" __global__ void local_read(const u32* x, u32* y, int count)
{
    u32 own[8];
    for (int i = 0; i < count; i++) own[x[i] & 7] = x[i];
    y[threadIdx.x] = own[x[threadIdx.x] & 7];
}

// A structure whose last word is padding, moved as a whole.
struct alignas(16) Point { float x, y, z; };
extern "C" __global__ void padding(const float4* in, float4* out, float* norm, float* last)
{
    float4 p = in[threadIdx.x];
    out[threadIdx.x] = p;
    norm[threadIdx.x] = p.x + p.y + p.z;
    if (last) last[threadIdx.x] = p.w + 1.f;
}

// Lanes of one warp at different barriers.
extern "C" __global__ void divided(const u32* x, u32* y)
{
    if (x[threadIdx.x] < 8) {
        asm volatile("bar.sync 1;" ::: "memory");
        y[threadIdx.x] = 1;
    } else {
        asm volatile("bar.sync 2;" ::: "memory");
        y[threadIdx.x] = 2;
    }
}

// Warps that count a barrier's threads differently.
extern "C" __global__ void miscounted(u32* y, int mine, int others)
{
    int threads = threadIdx.x < 32 ? mine : others;
    asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
    y[threadIdx.x] = threads;
}
