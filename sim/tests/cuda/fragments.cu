// A matrix product by the functions of mma.h.

#include <mma.h>

using namespace nvcuda;

// C = 2 A B of 16-row tiles: A row-major, B column-major, K a multiple of 16; a warp per tile.
extern "C" __global__ void product(const half* a, const half* b, float* c, int n, int k) {
    const int row = blockIdx.y * 16, column = blockIdx.x * 16;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums;
    wmma::fill_fragment(sums, 0.0f);
    for (int at = 0; at < k; at += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> y;
        wmma::load_matrix_sync(x, a + row * k + at, k);
        wmma::load_matrix_sync(y, b + column * k + at, k);
        wmma::mma_sync(sums, x, y, sums);
    }
    for (int i = 0; i < sums.num_elements; i++) sums.x[i] *= 2;
    wmma::store_matrix_sync(c + row * n + column, sums, n, wmma::mem_row_major);
}
