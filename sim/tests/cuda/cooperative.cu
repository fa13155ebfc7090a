// Kernels in the terms of cooperative groups: tiles of a block, and lanes that happen to be together.

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

// A barrier of the whole grid, the `round`-th from 1 on; every block must be resident.
__device__ void grid_sync(const cg::thread_block& block, unsigned* arrived, unsigned round) {
    block.sync();
    if (block.thread_rank() == 0) {
        unsigned seen;
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
        } while (seen < round * gridDim.x);
    }
    block.sync();
}

// y = x over the sum of all x. Tiles of 16 threads add up; the blocks' sums meet at a grid barrier.
extern "C" __global__ void normalise(const float* x, float* sums, float* y, unsigned* arrived, int n) {
    __shared__ float partial[64];
    const cg::thread_block block = cg::this_thread_block();
    const auto tile = cg::tiled_partition<16>(block);
    const int first = blockIdx.x * block.size() + block.thread_rank(), step = gridDim.x * block.size();
    float sum = 0;
    for (int i = first; i < n; i += step) sum += x[i];
    for (int other = tile.size() / 2; other > 0; other /= 2) sum += tile.shfl_down(sum, other);
    if (tile.thread_rank() == 0) partial[tile.meta_group_rank()] = sum;
    block.sync();
    if (block.thread_rank() == 0) {
        sum = 0;
        for (int i = 0; i < tile.meta_group_size(); i++) sum += partial[i];
        sums[blockIdx.x] = sum;
    }
    grid_sync(block, arrived, 1);
    float total = 0;
    for (int i = 0; i < gridDim.x; i++) total += sums[i];
    for (int i = first; i < n; i += step) y[i] = x[i] / total;
}

// Gathers what is above a limit, in any order: the lanes that found some take places by one atomic.
extern "C" __global__ void gather(const float* x, float limit, float* out, unsigned* count, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const float value = x[i];
        if (value <= limit) continue;
        const cg::coalesced_group found = cg::coalesced_threads();
        unsigned first;
        if (found.thread_rank() == 0) first = atomicAdd(count, found.size());
        out[found.shfl(first, 0) + found.thread_rank()] = value;
    }
}
