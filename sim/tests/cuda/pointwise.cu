// Pointwise kernels: one for each function, over n elements.
#define UNARY(type, name, expression)                                              \
    extern "C" __global__ void name(const type* a, const type* b, type* out, int n) \
    {                                                                              \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                             \
        if (i < n) {                                                               \
            type x = a[i], y = b[i];                                               \
            out[i] = expression;                                                   \
        }                                                                          \
    }

UNARY(float, f32_exp, expf(x))
UNARY(float, f32_exp2, exp2f(x))
UNARY(float, f32_expm1, expm1f(x))
UNARY(float, f32_log, logf(x))
UNARY(float, f32_log2, log2f(x))
UNARY(float, f32_log1p, log1pf(x))
UNARY(float, f32_sin, sinf(x))
UNARY(float, f32_cos, cosf(x))
UNARY(float, f32_tan, tanf(x))
UNARY(float, f32_tanh, tanhf(x))
UNARY(float, f32_sinh, sinhf(x))
UNARY(float, f32_atan, atanf(x))
UNARY(float, f32_erf, erff(x))
UNARY(float, f32_erfc, erfcf(x))
UNARY(float, f32_cbrt, cbrtf(x))
UNARY(float, f32_sqrt, sqrtf(x))
UNARY(float, f32_rsqrt, rsqrtf(x))
UNARY(float, f32_floor, floorf(x))
UNARY(float, f32_ceil, ceilf(x))
UNARY(float, f32_trunc, truncf(x))
UNARY(float, f32_rint, rintf(x))
UNARY(float, f32_round, roundf(x))
UNARY(float, f32_pow, powf(x, y))
UNARY(float, f32_fmod, fmodf(x, y))
UNARY(float, f32_atan2, atan2f(x, y))
UNARY(float, f32_div, x / y)
UNARY(float, f32_fma, fmaf(x, y, x))
UNARY(float, f32_min, fminf(x, y))
UNARY(float, f32_max, fmaxf(x, y))
UNARY(float, f32_fast_exp, __expf(x))
UNARY(float, f32_fast_log, __logf(x))
UNARY(float, f32_fast_sin, __sinf(x))
UNARY(float, f32_fast_div, __fdividef(x, y))
UNARY(float, f32_gelu_erf, 0.5f * x * (1.f + erff(x * 0.70710678f)))
UNARY(float, f32_silu, x / (1.f + __expf(-x)))
UNARY(float, f32_add_rz, __fadd_rz(x, y))
UNARY(float, f32_mul_ru, __fmul_ru(x, y))

UNARY(double, f64_exp, exp(x))
UNARY(double, f64_log, log(x))
UNARY(double, f64_sin, sin(x))
UNARY(double, f64_cos, cos(x))
UNARY(double, f64_tanh, tanh(x))
UNARY(double, f64_erf, erf(x))
UNARY(double, f64_pow, pow(x, y))
UNARY(double, f64_fmod, fmod(x, y))
UNARY(double, f64_sqrt, sqrt(x))
UNARY(double, f64_div, x / y)

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

UNARY(int, s32_div, y ? x / y : 0)
UNARY(int, s32_rem, y ? x % y : 0)
UNARY(u32, u32_div, y ? x / y : 0)
UNARY(u32, u32_rem, y ? x % y : 0)
UNARY(s64, s64_div, y ? x / y : 0)
UNARY(u64, u64_rem, y ? x % y : 0)
UNARY(u32, u32_mulhi, __umulhi(x, y))
UNARY(u64, u64_mulhi, __umul64hi(x, y))
UNARY(u32, u32_bits, __popc(x) + 100 * __clz(x) + 10000 * __ffs(x) + __brev(y))
UNARY(u32, u32_byte_perm, __byte_perm(x, y, 0x3715))
UNARY(u32, u32_funnel, __funnelshift_l(x, y, x & 63) ^ __funnelshift_rc(x, y, y & 63))
