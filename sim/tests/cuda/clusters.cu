// targets: sm_90a sm_120a
// Columns of a matrix without their means, by clusters of two blocks that hold half of the rows each.
// Panels of 64 columns come and go by tensor copies, two slots deep; the blocks tell each other
// their sums by asynchronous stores.

typedef unsigned int word;
typedef unsigned long long wide;

struct alignas(64) TensorMap {
    wide opaque[16];
};

constexpr int ROWS = 64;
constexpr int COLUMNS = 64;
constexpr int PANEL_BYTES = ROWS * COLUMNS * 2;
constexpr int SLOTS = 2;
// Threads that compute; as many more bring the panels.
constexpr int CONSUMERS = 128;

__device__ word shared_address(const void* pointer) {
    return (word)__cvta_generic_to_shared(pointer);
}

__device__ void init(word barrier, word count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ void expect(word barrier, word bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

__device__ void arrive(word barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ void wait(word barrier, word parity) {
    asm volatile(
        "{\n.reg .pred done;\nAGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra AGAIN;\n}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

__device__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ word of_peer(word address) {
    word rank, out;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(out) : "r"(address), "r"(rank ^ 1));
    return out;
}

__device__ void consumers_sync() {
    asm volatile("bar.sync 1, %0;" ::"n"(CONSUMERS) : "memory");
}

__device__ float2 unpack(word pair) {
    float2 out;
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\n"
        "cvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}"
        : "=f"(out.x), "=f"(out.y)
        : "r"(pair));
    return out;
}

__device__ word pack(float low, float high) {
    word out;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

// Where a row's chunk of eight elements is, swizzled by 128 bytes.
__device__ int chunk_offset(int row, int chunk) { return row * 128 + (chunk ^ row % 8) * 16; }

// in, out [rows, 64 panels] of f16; each cluster takes every (clusters)-th panel.
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(2 * CONSUMERS, 1)
center(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap out, int rows,
       int panels) {
    extern __shared__ __align__(1024) unsigned char slots[];
    __shared__ float partial[2][COLUMNS], told[SLOTS][COLUMNS], means[COLUMNS];
    __shared__ __align__(8) wide full[SLOTS], empty[SLOTS], arrived[SLOTS];
    const int thread = threadIdx.x, half = blockIdx.x % 2;
    const int first = blockIdx.x / 2, step = gridDim.x / 2;
    if (thread == 0) {
        for (int slot = 0; slot < SLOTS; slot++) {
            init(shared_address(&full[slot]), 1);
            init(shared_address(&empty[slot]), 1);
            init(shared_address(&arrived[slot]), 1);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_sync();
    if (thread >= CONSUMERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (thread == CONSUMERS) {
            for (int i = 0, panel = first; panel < panels; i++, panel += step) {
                const int slot = i % SLOTS;
                const word barrier = shared_address(&full[slot]);
                wait(shared_address(&empty[slot]), (i / SLOTS & 1) ^ 1);
                expect(barrier, PANEL_BYTES);
                asm volatile(
                    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                    "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(slots) + slot * PANEL_BYTES),
                    "l"(&in), "r"(panel * COLUMNS), "r"(half * ROWS), "r"(barrier)
                    : "memory");
            }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int column = thread % COLUMNS, lane = thread % 32;
    for (int i = 0, panel = first; panel < panels; i++, panel += step) {
        const int slot = i % SLOTS, parity = i / SLOTS & 1;
        unsigned char* tile = slots + slot * PANEL_BYTES;
        if (thread == 0) expect(shared_address(&arrived[slot]), COLUMNS * sizeof(float));
        wait(shared_address(&full[slot]), parity);
        float sum = 0;
        for (int row = thread / COLUMNS; row < ROWS; row += 2) {
            const int at = chunk_offset(row, column / 8) + column % 8 / 2 * 4;
            const float2 pair = unpack(*(const word*)(tile + at));
            sum += column % 2 ? pair.y : pair.x;
        }
        partial[thread / COLUMNS][column] = sum;
        consumers_sync();
        if (thread < COLUMNS) {
            sum = partial[0][column] + partial[1][column];
            asm volatile(
                "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                    of_peer(shared_address(&told[slot][column]))),
                "f"(sum), "r"(of_peer(shared_address(&arrived[slot])))
                : "memory");
            wait(shared_address(&arrived[slot]), parity);
            means[column] = (sum + told[slot][column]) / rows;
        }
        consumers_sync();
        // A warp takes 16 rows; the four matrices of 8 by 8 are those of 16 columns.
        const int row = thread / 32 * 16 + lane % 16;
#pragma unroll
        for (int n = 0; n < COLUMNS / 16; n++) {
            const word at = shared_address(tile + chunk_offset(row, n * 2 + lane / 16));
            word matrix[4];
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(matrix[0]), "=r"(matrix[1]), "=r"(matrix[2]), "=r"(matrix[3])
                         : "r"(at)
                         : "memory");
#pragma unroll
            for (int m = 0; m < 4; m++) {
                const float2 pair = unpack(matrix[m]);
                const float* mean = means + n * 16 + m / 2 * 8 + lane % 4 * 2;
                matrix[m] = pack(pair.x - mean[0], pair.y - mean[1]);
            }
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                         "r"(matrix[0]), "r"(matrix[1]), "r"(matrix[2]), "r"(matrix[3])
                         : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        consumers_sync();
        if (thread == 0) {
            asm volatile(
                "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
                    &out),
                "r"(panel * COLUMNS), "r"(half * ROWS), "r"(shared_address(tile))
                : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            arrive(shared_address(&empty[slot]));
        }
    }
}
