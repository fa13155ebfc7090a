// Kernels whose counts can be worked out by hand.
typedef unsigned int u32;

extern "C" __global__ void copy(const u32* x, u32* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
}

extern "C" __global__ void strided_copy(const u32* x, u32* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i * 16];
}

// A tree in shared memory, for blocks of 256 threads.
extern "C" __global__ void reduction(const float* x, float* out)
{
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 256 + t];
#pragma unroll 1
    for (int half = 128; half; half >>= 1) {
        __syncthreads();
        if (t < half) s[t] += s[t + half];
    }
    if (t == 0) out[blockIdx.x] = s[0];
}

// C = A B of N x N, N a multiple of 32, for blocks of 32 x 8 threads that make a tile of 32 x 32;
// PAD is what each row of A's tile has beyond its 32 columns.
template <int PAD> __device__ void product(const float* a, const float* b, float* c, int n)
{
    __shared__ float as[32][32 + PAD], bs[32][32];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 32, column = blockIdx.x * 32 + x;
    float sum[4] = {};
    for (int at = 0; at < n; at += 32) {
        // A's tile is stored turned: its columns are rows here.
#pragma unroll
        for (int i = 0; i < 4; i++) as[x][y + 8 * i] = a[(row + y + 8 * i) * n + at + x];
#pragma unroll
        for (int i = 0; i < 4; i++) bs[y + 8 * i][x] = b[(at + y + 8 * i) * n + column];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 32; k++)
#pragma unroll
            for (int i = 0; i < 4; i++) sum[i] += as[k][y + 8 * i] * bs[k][x];
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; i++) c[(row + y + 8 * i) * n + column] = sum[i];
}
extern "C" __global__ void product_even(const float* a, const float* b, float* c, int n)
{
    product<0>(a, b, c, n);
}
extern "C" __global__ void product_padded(const float* a, const float* b, float* c, int n)
{
    product<1>(a, b, c, n);
}
