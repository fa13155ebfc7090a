// Arithmetic by the types and functions of CUDA's own headers for 16-bit formats.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// y = min(max((a x + b) x + c, -4), 4) on pairs of f16.
extern "C" __global__ void quadratic(const __half2* x, __half2* y, int pairs, float a, float b, float c) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= pairs) return;
    const __half2 first = __hfma2(__float2half2_rn(a), x[i], __float2half2_rn(b));
    const __half2 value = __hfma2(first, x[i], __float2half2_rn(c));
    y[i] = __hmin2(__hmax2(value, __float2half2_rn(-4)), __float2half2_rn(4));
}

// Adds 2^x of all pairs into one, and counts the elements above zero.
extern "C" __global__ void sum_of_powers(const __half2* x, __half2* sum, unsigned* positive, int pairs) {
    __half2 own = __float2half2_rn(0);
    unsigned above = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < pairs; i += gridDim.x * blockDim.x) {
        own = __hadd2(own, h2exp2(x[i]));
        above += __popc(__hgt2_mask(x[i], __float2half2_rn(0))) / 16;
    }
    atomicAdd(sum, own);
    atomicAdd(positive, above);
}

// bf16 by f32 and back: y = x / sqrt(mean(x^2) + 1e-5), a warp for each row.
extern "C" __global__ void rms_norm(const __nv_bfloat162* x, __nv_bfloat162* y, int rows, int pairs) {
    const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0;
    for (int i = lane; i < pairs; i += 32) {
        const float2 value = __bfloat1622float2(x[row * pairs + i]);
        sum += value.x * value.x + value.y * value.y;
    }
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(0xffffffff, sum, other);
    const float scale = rsqrtf(sum / (2 * pairs) + 1e-5f);
    for (int i = lane; i < pairs; i += 32) {
        const float2 value = __bfloat1622float2(x[row * pairs + i]);
        y[row * pairs + i] = __floats2bfloat162_rn(value.x * scale, value.y * scale);
    }
}

// f16 and bf16 scalars: comparisons, NaN, conversions to integers.
extern "C" __global__ void scalars(const __half* x, const __nv_bfloat16* y, int4* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const __half h = x[i];
    const __nv_bfloat16 b = y[i];
    int4 got;
    got.x = __hisnan(h) ? -1 : __half2int_rn(__hmul(h, __float2half(0.25f)));
    got.y = __hlt(h, __float2half(1)) + 2 * __hge(b, __float2bfloat16(-1));
    got.z = __half_as_ushort(__hfma_relu(h, h, __float2half(-2)));
    got.w = __bfloat16_as_ushort(__hneg(b));
    out[i] = got;
}
