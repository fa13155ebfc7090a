// targets: sm_90a
// A pipelined product of f16 matrices by warpgroups: tiles come and go by tensor copies, swizzled
// by 128 bytes; and a product whose left side is in registers.

typedef unsigned int word;
typedef unsigned long long wide;
typedef unsigned short half_bits;

struct alignas(64) TensorMap {
    wide opaque[16];
};

constexpr int TILE = 64;
constexpr int TILE_BYTES = TILE * TILE * 2;
constexpr int STAGES = 3;

__device__ word shared_address(const void* pointer) {
    return (word)__cvta_generic_to_shared(pointer);
}

__device__ void init(word barrier, word count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ void wait(word barrier, word parity) {
    asm volatile(
        "{\n.reg .pred done;\nAGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra AGAIN;\n}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

__device__ void load_tile(word to, const TensorMap* map, int x, int y, word barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
        "l"(map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

// Rows of 128 bytes, swizzled; groups of eight rows are 1024 bytes apart.
__device__ wide describe(word address) {
    return (wide)(address >> 4) | (wide)1 << 16 | (wide)64 << 32 | (wide)1 << 62;
}

__device__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> __device__ void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

__device__ void multiply(float (&d)[32], wide a, wide b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]),
          "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
          "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),
          "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b));
}

__device__ void multiply_registers(float (&d)[32], const word (&a)[4], wide b) {
    asm volatile(
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, adds, 1, 1, 1;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]),
          "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
          "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),
          "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));
}

__device__ word pack(float low, float high) {
    word out;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

// c[m, n] = a[m, k] b[n, k]: the last warpgroup copies, the first multiplies.
extern "C" __global__ void __launch_bounds__(256, 1)
matmul(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
       const __grid_constant__ TensorMap c, int tiles) {
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ __align__(8) wide full[STAGES], empty[STAGES];
    const int x = blockIdx.x * TILE, y = blockIdx.y * TILE;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            init(shared_address(&full[i]), 1);
            init(shared_address(&empty[i]), 128);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 128) {
            for (int tile = 0; tile < tiles; tile++) {
                int slot = tile % STAGES;
                word barrier = shared_address(&full[slot]);
                word to = shared_address(memory) + slot * 2 * TILE_BYTES;
                wait(shared_address(&empty[slot]), (tile / STAGES & 1) ^ 1);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                             "r"(2 * TILE_BYTES)
                             : "memory");
                load_tile(to, &a, tile * TILE, y, barrier);
                load_tile(to + TILE_BYTES, &b, tile * TILE, x, barrier);
            }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float d[32] = {};
    for (int tile = 0; tile < tiles; tile++) {
        int slot = tile % STAGES;
        word at = shared_address(memory) + slot * 2 * TILE_BYTES;
        wait(shared_address(&full[slot]), tile / STAGES & 1);
        fence();
#pragma unroll
        for (int k = 0; k < TILE / 16; k++)
            multiply(d, describe(at + k * 32), describe(at + TILE_BYTES + k * 32));
        commit();
        // One group stays under way; the slot before has been read.
        wait_products<1>();
        if (tile > 0)
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(
                             shared_address(&empty[(tile - 1) % STAGES]))
                         : "memory");
    }
    wait_products<0>();
    // The fragments of 16 rows by 16 columns are four matrices; the tile is swizzled as it goes out.
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    word out = shared_address(memory) + STAGES * 2 * TILE_BYTES;
#pragma unroll
    for (int n = 0; n < TILE / 16; n++) {
        int row = warp * 16 + lane % 16, chunk = n * 2 + lane / 16;
        word at = out + row * 128 + (chunk ^ row % 8) * 16;
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                     "r"(pack(d[n * 8], d[n * 8 + 1])), "r"(pack(d[n * 8 + 2], d[n * 8 + 3])),
                     "r"(pack(d[n * 8 + 4], d[n * 8 + 5])), "r"(pack(d[n * 8 + 6], d[n * 8 + 7]))
                     : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync 1, 128;" ::: "memory");
    if (threadIdx.x == 0) {
        asm volatile(
            "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
                &c),
            "r"(x), "r"(y), "r"(out)
            : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// out[64, 64] = a[64, 64] b[64, 64], a from global memory to registers, b as rows of n.
extern "C" __global__ void __launch_bounds__(128)
from_registers(const half_bits* a, const __grid_constant__ TensorMap b, float* out) {
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ __align__(8) wide full;
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
    if (threadIdx.x == 0) {
        init(shared_address(&full), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                         shared_address(&full)),
                     "r"(TILE_BYTES)
                     : "memory");
        load_tile(shared_address(memory), &b, 0, 0, shared_address(&full));
    }
    float d[32];
#pragma unroll
    for (int i = 0; i < 32; i++) d[i] = 1.0f;
    __syncthreads();
    wait(shared_address(&full), 0);
    word fragments[4][4];
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            fragments[k][i] = *(const word*)(a + (row + i % 2 * 8) * 64 + k * 16 + i / 2 * 8 +
                                             lane % 4 * 2);
    fence();
#pragma unroll
    for (int k = 0; k < 4; k++)
        multiply_registers(d, fragments[k], describe(shared_address(memory) + k * 2048));
    commit();
    wait_products<0>();
#pragma unroll
    for (int i = 0; i < 32; i++)
        out[(row + i / 2 % 2 * 8) * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
}
