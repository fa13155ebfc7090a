// targets: sm_90a
// Kernels of which the benches measure the rates: FMA and MMA on registers, `wgmma` on tiles in
// shared memory, 16-byte copies through shared memory.

typedef unsigned int word;
typedef unsigned long long wide;

// Eight chains of FMA.
extern "C" __global__ void __launch_bounds__(256) fma_f32(float* out, float a, float b, int steps)
{
    float x[8];
    for (int j = 0; j < 8; j++) x[j] = (float)(threadIdx.x + j);
    for (int i = 0; i < steps; i++)
        for (int j = 0; j < 8; j++) x[j] = fmaf(x[j], a, b);
    float sum = 0.f;
    for (int j = 0; j < 8; j++) sum += x[j];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

template <typename T, int C> __device__ void store(T* out, const T (&d)[4][C])
{
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < C; i++)
            out[((blockIdx.x * 4 + j) * C + i) * blockDim.x + threadIdx.x] = d[j][i];
}

// Four accumulator tiles of `mma.sync`, with operands in registers.

extern "C" __global__ void __launch_bounds__(128) mma_f16(float* out, word value, int steps)
{
    word a[4], b[2];
    float d[4][4] = {};
    for (int i = 0; i < 4; i++) a[i] = value;
    for (int i = 0; i < 2; i++) b[i] = value;
    for (int i = 0; i < steps; i++)
        for (int j = 0; j < 4; j++)
            asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                : "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    store(out, d);
}

extern "C" __global__ void __launch_bounds__(128) mma_bf16(float* out, word value, int steps)
{
    word a[4], b[2];
    float d[4][4] = {};
    for (int i = 0; i < 4; i++) a[i] = value;
    for (int i = 0; i < 2; i++) b[i] = value;
    for (int i = 0; i < steps; i++)
        for (int j = 0; j < 4; j++)
            asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                : "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    store(out, d);
}

extern "C" __global__ void __launch_bounds__(128) mma_tf32(float* out, word value, int steps)
{
    word a[4], b[2];
    float d[4][4] = {};
    for (int i = 0; i < 4; i++) a[i] = value;
    for (int i = 0; i < 2; i++) b[i] = value;
    for (int i = 0; i < steps; i++)
        for (int j = 0; j < 4; j++)
            asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                : "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    store(out, d);
}

extern "C" __global__ void __launch_bounds__(128) mma_s8(int* out, word value, int steps)
{
    word a[4], b[2];
    int d[4][4] = {};
    for (int i = 0; i < 4; i++) a[i] = value;
    for (int i = 0; i < 2; i++) b[i] = value;
    for (int i = 0; i < steps; i++)
        for (int j = 0; j < 4; j++)
            asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                : "+r"(d[j][0]), "+r"(d[j][1]), "+r"(d[j][2]), "+r"(d[j][3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    store(out, d);
}

extern "C" __global__ void __launch_bounds__(128) mma_f64(double* out, double value, int steps)
{
    double a[1], b[1];
    double d[4][2] = {};
    for (int i = 0; i < 1; i++) a[i] = value;
    for (int i = 0; i < 1; i++) b[i] = value;
    for (int i = 0; i < steps; i++)
        for (int j = 0; j < 4; j++)
            asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 "
                "{%0, %1}, {%2}, {%3}, {%0, %1};"
                : "+d"(d[j][0]), "+d"(d[j][1])
                : "d"(a[0]), "d"(b[0]));
    store(out, d);
}

__device__ word shared_address(const void* pointer)
{
    return (word)__cvta_generic_to_shared(pointer);
}

// Rows of 128 bytes, swizzled; groups of eight rows are 1024 bytes apart.
__device__ wide describe(word address)
{
    return (wide)(address >> 4) | (wide)1 << 16 | (wide)64 << 32 | (wide)1 << 62;
}

__device__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ void wait_products() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }

__device__ void multiply(float (&d)[64], wide a, wide b)
{
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(a), "l"(b));
}

// 16 bytes of a tile with rows of 128 bytes, swizzled.
__device__ uint4* chunk_at(unsigned char* tile, int i)
{
    return (uint4*)(tile + i / 8 * 128 + (i % 8 ^ i / 8 % 8) * 16);
}

constexpr int A_CHUNKS = 64 * 8, B_CHUNKS = 128 * 8;

// out = a b: each block 64 rows of a by 128 columns of b, both with `chunks` chunks of 16 bytes for a
// row. A K step is `repeats` times multiplied.
extern "C" __global__ void __launch_bounds__(128)
wgmma_bf16(const uint4* a, const uint4* b, float* out, int chunks, int repeats)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    unsigned char* const tile_b = memory + A_CHUNKS * 16;
    float d[64] = {};
    for (int k = 0; k < chunks; k += 8) {
        for (int i = threadIdx.x; i < A_CHUNKS; i += 128)
            *chunk_at(memory, i) = a[(blockIdx.x * 64 + i / 8) * chunks + k + i % 8];
        for (int i = threadIdx.x; i < B_CHUNKS; i += 128)
            *chunk_at(tile_b, i) = b[i / 8 * chunks + k + i % 8];
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        fence();
#pragma unroll 1
        for (int repeat = 0; repeat < repeats; repeat++)
#pragma unroll
            for (int step = 0; step < 4; step++)
                multiply(d, describe(shared_address(memory) + step * 32),
                         describe(shared_address(tile_b) + step * 32));
        commit();
        wait_products();
        __syncthreads();
    }
    const int lane = threadIdx.x % 32, row = blockIdx.x * 64 + threadIdx.x / 32 * 16 + lane / 4;
    for (int i = 0; i < 32; i++)
        *(float2*)(out + (row + i % 2 * 8) * 128 + i / 2 * 8 + lane % 4 * 2) =
            make_float2(d[2 * i], d[2 * i + 1]);
}

// Tiles of 16 bytes a thread go through shared memory, turned around.
extern "C" __global__ void __launch_bounds__(256) copy_16(const uint4* x, uint4* y, int tiles)
{
    __shared__ uint4 tile[256];
    for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
        tile[threadIdx.x] = x[i * 256 + threadIdx.x];
        __syncthreads();
        y[i * 256 + threadIdx.x] = tile[255 - threadIdx.x];
        __syncthreads();
    }
}

// The same by asynchronous copies, the next tile under way while one is stored.
extern "C" __global__ void __launch_bounds__(256) copy_async_16(const uint4* x, uint4* y, int tiles)
{
    __shared__ uint4 tile[2][256];
    auto issue = [&](int i, int slot) {
        if (i < tiles)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                             shared_address(&tile[slot][threadIdx.x])),
                         "l"(x + i * 256 + threadIdx.x)
                         : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    issue(blockIdx.x, 0);
    for (int i = blockIdx.x, slot = 0; i < tiles; i += gridDim.x, slot ^= 1) {
        issue(i + gridDim.x, slot ^ 1);
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        y[i * 256 + threadIdx.x] = tile[slot][255 - threadIdx.x];
        __syncthreads();
    }
}
