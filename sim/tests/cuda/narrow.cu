// Conversions of CUDA's headers for formats of 4, 6 and 8 bits, and arithmetic on pairs.
// targets: sm_120a

#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>

// The codes of each value, and the values of the codes.
extern "C" __global__ void codes(const float* x, unsigned char* code, float* value, int count) {
    const int i = threadIdx.x;
    const __nv_fp4_e2m1 four(x[i]);
    const __nv_fp6_e2m3 six(x[i]);
    const __nv_fp6_e3m2 wide(x[i]);
    const __nv_fp8_e8m0 exponent(x[i]);
    code[i] = four.__x;
    code[count + i] = six.__x;
    code[2 * count + i] = wide.__x;
    code[3 * count + i] = exponent.__x;
    value[i] = float(four);
    value[count + i] = float(six);
    value[2 * count + i] = float(wide);
    value[3 * count + i] = float(exponent);
}

extern "C" __global__ void pairs(const float2* a, const float2* b, float2* out) {
    const int i = threadIdx.x;
    out[i] = __ffma2_rn(a[i], b[i], __fadd2_rn(a[i], b[i]));
}
