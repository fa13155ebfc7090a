extern "C" __global__ void reverse(const unsigned* x, unsigned* y, int tiles)
{
    __shared__ unsigned tile[64];
#pragma unroll 1
    for (int i = 0; i < tiles; i++) {
        tile[threadIdx.x] = x[i * 64 + threadIdx.x];
        __syncthreads();
        y[i * 64 + threadIdx.x] = tile[63 - threadIdx.x];
    }
}
