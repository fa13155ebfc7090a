// Cooperative groups by CUDA's own header: barriers of the grid, and tiles of a warp.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

// Each round, every thread adds its rank, then takes the value of a neighbour in another block.
extern "C" __global__ void rounds(unsigned* values, int rounds) {
    const auto grid = cg::this_grid();
    const unsigned rank = grid.thread_rank();
    for (int round = 0; round < rounds; round++) {
        values[rank] += rank;
        grid.sync();
        const unsigned next = values[(rank + blockDim.x) % grid.size()];
        grid.sync();
        values[rank] = next;
    }
}

// Sums of tiles of 8, and the size of the group of lanes with an odd value.
extern "C" __global__ void tiles(const int* values, int* sums, unsigned* odd) {
    const auto block = cg::this_thread_block();
    const auto tile = cg::tiled_partition<8>(block);
    const int value = values[block.thread_rank()];
    sums[block.thread_rank()] = cg::reduce(tile, value, cg::plus<int>());
    odd[block.thread_rank()] = 0;
    if (value & 1) odd[block.thread_rank()] = cg::coalesced_threads().size();
}
