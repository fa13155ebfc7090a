// Attention forward for 64-wide heads: one block for 64 queries, a warp for 16 of them. Keys and
// values come by asynchronous copies, two stages deep; products are m16n8k16 in f16.

typedef unsigned short half_bits;
typedef unsigned int word;

constexpr int WIDTH = 64;
constexpr int QUERIES = 64;
constexpr int KEYS = 32;
// Eight more elements keep the rows of a matrix load in different banks.
constexpr int PITCH = WIDTH + 8;

__device__ word shared_address(const void* pointer) {
    return (word)__cvta_generic_to_shared(pointer);
}

__device__ void copy_async(word to, const void* from, bool valid) {
    int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
}

__device__ void load_matrices(word (&out)[4], word address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
}

__device__ void load_transposed(word (&out)[4], word address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
}

__device__ void multiply(float (&sum)[4], const word (&a)[4], word b0, word b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ word pack(float low, float high) {
    word out;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

__device__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ float of_row(float x, bool largest) {
    for (int step = 1; step < 4; step *= 2) {
        float other = __shfl_xor_sync(0xffffffff, x, step);
        x = largest ? fmaxf(x, other) : x + other;
    }
    return x;
}

extern "C" __global__ void __launch_bounds__(128)
attention(const half_bits* q, const half_bits* k, const half_bits* v, half_bits* out, int length,
          float scale) {
    extern __shared__ __align__(16) half_bits memory[];
    half_bits* queries = memory;
    half_bits* keys = queries + QUERIES * PITCH;
    half_bits* values = keys + 2 * KEYS * PITCH;
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const int first = blockIdx.x * QUERIES;
    const long base = (long)blockIdx.y * length * WIDTH;
    const float low = __int_as_float(0xff800000);

    auto load = [&](half_bits* to, const half_bits* from, int row0, int rows) {
        for (int i = thread; i < rows * (WIDTH / 8); i += 128) {
            int row = i / (WIDTH / 8), column = i % (WIDTH / 8) * 8;
            bool valid = row0 + row < length;
            long at = base + (long)(valid ? row0 + row : 0) * WIDTH + column;
            copy_async(shared_address(to + row * PITCH + column), from + at, valid);
        }
    };
    auto load_stage = [&](int tile) {
        load(keys + tile % 2 * KEYS * PITCH, k, tile * KEYS, KEYS);
        load(values + tile % 2 * KEYS * PITCH, v, tile * KEYS, KEYS);
    };

    load(queries, q, first, QUERIES);
    load_stage(0);
    asm volatile("cp.async.commit_group;" ::: "memory");
    const int tiles = (length + KEYS - 1) / KEYS;
    float sums[WIDTH / 8][4] = {}, most[2] = {low, low}, total[2] = {};
    word a[WIDTH / 16][4];
    for (int tile = 0; tile < tiles; tile++) {
        if (tile + 1 < tiles) load_stage(tile + 1);
        asm volatile("cp.async.commit_group;" ::: "memory");
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        if (tile == 0) {
#pragma unroll
            for (int i = 0; i < WIDTH / 16; i++)
                load_matrices(a[i], shared_address(queries + (warp * 16 + lane % 16) * PITCH +
                                                   i * 16 + lane / 16 * 8));
        }
        const half_bits* key = keys + tile % 2 * KEYS * PITCH;
        const half_bits* value = values + tile % 2 * KEYS * PITCH;
        float scores[KEYS / 8][4] = {};
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
#pragma unroll
            for (int i = 0; i < WIDTH / 16; i++) {
                word b[4];
                load_matrices(b, shared_address(key + (n * 16 + lane % 8 + lane / 16 * 8) * PITCH +
                                                i * 16 + lane / 8 % 2 * 8));
                multiply(scores[2 * n], a[i], b[0], b[1]);
                multiply(scores[2 * n + 1], a[i], b[2], b[3]);
            }
        }
        float next[2] = {most[0], most[1]};
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                if (tile * KEYS + n * 8 + lane % 4 * 2 + e % 2 >= length) scores[n][e] = low;
                next[e / 2] = fmaxf(next[e / 2], scores[n][e]);
            }
        word p[KEYS / 16][4];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            next[half] = of_row(next[half], true);
            float fade = exp2_fast((most[half] - next[half]) * scale);
            most[half] = next[half];
            total[half] *= fade;
#pragma unroll
            for (int n = 0; n < WIDTH / 8; n++) {
                sums[n][2 * half] *= fade;
                sums[n][2 * half + 1] *= fade;
            }
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
                float x = exp2_fast((scores[n][2 * half] - next[half]) * scale);
                float y = exp2_fast((scores[n][2 * half + 1] - next[half]) * scale);
                total[half] += x + y;
                p[n / 2][n % 2 * 2 + half] = pack(x, y);
            }
        }
#pragma unroll
        for (int i = 0; i < KEYS / 16; i++)
#pragma unroll
            for (int n = 0; n < WIDTH / 16; n++) {
                word b[4];
                load_transposed(b, shared_address(value + (i * 16 + lane % 16) * PITCH + n * 16 +
                                                  lane / 16 * 8));
                multiply(sums[2 * n], p[i], b[0], b[1]);
                multiply(sums[2 * n + 1], p[i], b[2], b[3]);
            }
        __syncthreads();
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float inverse = 1.0f / of_row(total[half], false);
        int row = first + warp * 16 + lane / 4 + half * 8;
        if (row >= length) continue;
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++)
            *(word*)(out + base + (long)row * WIDTH + n * 8 + lane % 4 * 2) =
                pack(sums[n][2 * half] * inverse, sums[n][2 * half + 1] * inverse);
    }
}
