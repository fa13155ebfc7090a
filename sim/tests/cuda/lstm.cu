// A persistent LSTM layer for up to eight sequences. A block holds the recurrent weights of 16 units
// in shared memory for the whole run, and computes their gates by m16n8k16 products in f16: a warp
// for each gate. The hidden state goes from step to step through global memory and a barrier of the
// grid, so every block must be resident.

typedef unsigned short half_bits;
typedef unsigned int word;

constexpr int UNITS = 16;
constexpr int BATCH = 8;
constexpr int GATES = 4;
// Eight more elements keep the rows of a matrix load in different banks.
constexpr int PAD = 8;

__device__ word shared_address(const void* pointer) {
    return (word)__cvta_generic_to_shared(pointer);
}

__device__ half_bits to_half(float x) {
    half_bits out;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(x));
    return out;
}

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// 16 rows of `weights` times 8 columns of `hidden`, both of `width` elements along k.
__device__ void multiply(float (&sum)[4], const half_bits* weights, const half_bits* hidden,
                         int width) {
    const int lane = threadIdx.x % 32, pitch = width + PAD;
    word a_at = shared_address(weights + lane % 16 * pitch + lane / 16 * 8);
    word b_at = shared_address(hidden + lane % 8 * pitch + lane / 8 % 2 * 8);
    for (int k = 0; k < width; k += 16, a_at += 32, b_at += 32) {
        word a[4], b[2];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                     : "r"(a_at)
                     : "memory");
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(b[0]), "=r"(b[1])
                     : "r"(b_at)
                     : "memory");
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
}

__device__ void grid_barrier(word* arrived, word target) {
    __syncthreads();
    if (threadIdx.x == 0) {
        word seen;
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                         : "=r"(seen)
                         : "l"(arrived)
                         : "memory");
        } while (seen < target);
    }
    __syncthreads();
}

// projected [steps, batch, 4, width]: the inputs times their weights, and the biases; gates are
//     input, forget, cell, output.
// weights [4, width, width], hidden [2, batch, width]: its first half is the first state.
// outputs [steps, batch, width], cells [batch, width]: those after the last step.
// width is a multiple of 16, of which the grid has width / 16 blocks; arrived is zero.
extern "C" __global__ void __launch_bounds__(UNITS * BATCH)
lstm(const float* projected, const half_bits* weights, half_bits* hidden, float* outputs,
     float* cells, word* arrived, int width, int batch, int steps) {
    extern __shared__ __align__(16) half_bits memory[];
    __shared__ float gates[GATES][UNITS][BATCH + 1];
    const int pitch = width + PAD, chunks = width / 8;
    half_bits* own = memory;
    half_bits* previous = memory + GATES * UNITS * pitch;
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const int unit = blockIdx.x * UNITS + thread % UNITS, sequence = thread / UNITS;
    for (int i = thread; i < GATES * UNITS * chunks; i += UNITS * BATCH) {
        int row = i / chunks, column = i % chunks * 8;
        int from = row / UNITS * width + blockIdx.x * UNITS + row % UNITS;
        *(uint4*)(own + row * pitch + column) = *(const uint4*)(weights + from * width + column);
    }
    float cell = 0;
    for (int step = 0; step < steps; step++) {
        const half_bits* before = hidden + step % 2 * batch * width;
        half_bits* after = hidden + (step + 1) % 2 * batch * width;
        for (int i = thread; i < BATCH * chunks; i += UNITS * BATCH) {
            int row = i / chunks, column = i % chunks * 8;
            uint4 part = make_uint4(0, 0, 0, 0);
            if (row < batch) part = __ldcg((const uint4*)(before + row * width + column));
            *(uint4*)(previous + row * pitch + column) = part;
        }
        __syncthreads();
        float sum[4] = {};
        multiply(sum, own + warp * UNITS * pitch, previous, width);
#pragma unroll
        for (int i = 0; i < 4; i++) gates[warp][lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = sum[i];
        __syncthreads();
        if (sequence < batch) {
            float gate[GATES];
#pragma unroll
            for (int i = 0; i < GATES; i++)
                gate[i] = gates[i][thread % UNITS][sequence] +
                          projected[((step * batch + sequence) * GATES + i) * width + unit];
            cell = sigmoid(gate[1]) * cell + sigmoid(gate[0]) * tanhf(gate[2]);
            const float output = sigmoid(gate[3]) * tanhf(cell);
            outputs[(step * batch + sequence) * width + unit] = output;
            after[sequence * width + unit] = to_half(output);
        }
        grid_barrier(arrived, (step + 1) * gridDim.x);
    }
    if (sequence < batch) cells[sequence * width + unit] = cell;
}
