// targets: sm_90a
// Products of warpgroups with planted mistakes, each beside its correct form. `FIXED` is what a
// correct form adds. Operands are 64 by 16 and 8 by 16, not swizzled.

typedef unsigned int word;
typedef unsigned long long wide;

__device__ word shared_address(const void* pointer)
{
    return (word)__cvta_generic_to_shared(pointer);
}

// Core matrices of 8 rows of 16 bytes: neighbours along K are 128 bytes apart, along rows 256.
__device__ wide describe(const void* pointer)
{
    return (wide)(shared_address(pointer) >> 4) | (wide)8 << 16 | (wide)16 << 32;
}

__device__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ void wait_products() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }

__device__ void multiply(float (&d)[4], wide a, wide b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
}

__device__ void multiply_registers(float (&d)[4], word (&a)[4], wide b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]),
                   "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3]) : "l"(b));
}

struct Operands {
    alignas(128) word a[64 * 8];
    alignas(128) word b[2][8 * 8];
};

__device__ void fill(Operands& operands)
{
    for (int i = threadIdx.x; i < 64 * 8; i += blockDim.x) operands.a[i] = 0x3c003c00;
    for (int i = threadIdx.x; i < 2 * 8 * 8; i += blockDim.x) operands.b[0][i] = 0x3c003c00;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
}

__device__ void store(float* out, const float (&d)[4])
{
    for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = d[i];
}

// Accumulators are scaled between two products.
template <bool FIXED> __device__ void scaled(float* out, float factor)
{
    __shared__ Operands operands;
    fill(operands);
    float d[4] = {};
    fence();
    multiply(d, describe(operands.a), describe(operands.b[0]));
    commit();
    wait_products();
    for (int i = 0; i < 4; i++) asm volatile("mul.f32 %0, %0, %1;" : "+f"(d[i]) : "f"(factor));
    if (FIXED) fence();
    multiply(d, describe(operands.a), describe(operands.b[1]));
    commit();
    wait_products();
    store(out, d);
}
extern "C" __global__ void scaled_racy(float* out, float factor) { scaled<false>(out, factor); }
extern "C" __global__ void scaled_clean(float* out, float factor) { scaled<true>(out, factor); }

// An operand in registers is written while a product reads it.
template <bool FIXED> __device__ void reused(float* out, float factor)
{
    __shared__ Operands operands;
    fill(operands);
    float d[4] = {};
    word a[4] = {0x3c003c00, 0x3c003c00, 0x3c003c00, 0x3c003c00};
    fence();
    multiply_registers(d, a, describe(operands.b[0]));
    commit();
    if (FIXED) wait_products();
    for (int i = 0; i < 4; i++) asm volatile("add.u32 %0, %0, 1;" : "+r"(a[i]));
    fence();
    multiply_registers(d, a, describe(operands.b[1]));
    commit();
    wait_products();
    store(out, d);
}
extern "C" __global__ void reused_racy(float* out, float factor) { reused<false>(out, factor); }
extern "C" __global__ void reused_clean(float* out, float factor) { reused<true>(out, factor); }

// Warps of a warpgroup multiply by different matrices.
template <bool FIXED> __device__ void apart(float* out, float factor)
{
    __shared__ Operands operands;
    fill(operands);
    float d[4] = {};
    const int which = FIXED ? threadIdx.x / 128 : threadIdx.x / 32 % 2;
    fence();
    multiply(d, describe(operands.a), describe(operands.b[which]));
    commit();
    wait_products();
    store(out, d);
}
extern "C" __global__ void apart_racy(float* out, float factor) { apart<false>(out, factor); }
extern "C" __global__ void apart_clean(float* out, float factor) { apart<true>(out, factor); }

// A part of the warps of a warpgroup multiplies.
template <bool FIXED> __device__ void some(float* out, float factor)
{
    __shared__ Operands operands;
    fill(operands);
    float d[4] = {};
    if (threadIdx.x / 32 < (FIXED ? 4 : 3)) {
        fence();
        multiply(d, describe(operands.a), describe(operands.b[0]));
        commit();
        wait_products();
    }
    store(out, d);
}
extern "C" __global__ void some_racy(float* out, float factor) { some<false>(out, factor); }
extern "C" __global__ void some_clean(float* out, float factor) { some<true>(out, factor); }

// Another warp stores over an operand when the warpgroup says that it is done: one thread, or all.
template <bool FIXED> __device__ void refilled(float* out, float factor)
{
    __shared__ Operands operands;
    __shared__ alignas(8) wide done;
    const word barrier = shared_address(&done);
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(FIXED ? 128 : 1) : "memory");
    fill(operands);
    float d[4] = {};
    if (threadIdx.x < 128) {
        fence();
        multiply(d, describe(operands.a), describe(operands.b[0]));
        commit();
        wait_products();
        if (FIXED || threadIdx.x == 0)
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
        store(out, d);
    } else if (threadIdx.x < 160) {
        asm volatile(
            "{\n.reg .pred done;\nAGAIN:\n"
            "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n@!done bra AGAIN;\n}" ::"r"(barrier) : "memory");
        operands.b[0][threadIdx.x - 128] = 0;
    }
}
extern "C" __global__ void refilled_early(float* out, float factor) { refilled<false>(out, factor); }
extern "C" __global__ void refilled_clean(float* out, float factor) { refilled<true>(out, factor); }
