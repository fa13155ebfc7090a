// Kernels with planted mistakes, each beside its correct form. `FIXED` is what a correct form adds.
typedef unsigned int u32;

template <bool FIXED> __device__ void sync()
{
    if (FIXED) __syncthreads();
}

// Reads what another warp stores, with and without a barrier between.
template <bool FIXED> __device__ void rotate(const u32* x, u32* y)
{
    __shared__ u32 s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    sync<FIXED>();
    y[t] = s[(t + 32) % 64];
}
extern "C" __global__ void rotate_racy(const u32* x, u32* y) { rotate<false>(x, y); }
extern "C" __global__ void rotate_clean(const u32* x, u32* y) { rotate<true>(x, y); }

// Stores over what another warp reads.
template <bool FIXED> __device__ void reuse(const u32* x, u32* y)
{
    __shared__ u32 s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    u32 seen = s[63 - t];
    sync<FIXED>();
    s[t] = seen * 2;
    __syncthreads();
    y[t] = s[t];
}
extern "C" __global__ void reuse_racy(const u32* x, u32* y) { reuse<false>(x, y); }
extern "C" __global__ void reuse_clean(const u32* x, u32* y) { reuse<true>(x, y); }

// A loop over tiles, with and without the barrier at its end.
template <bool FIXED> __device__ void tiles(const u32* x, u32* y, int count)
{
    __shared__ u32 s[64];
    int t = threadIdx.x;
    u32 sum = 0;
    for (int i = 0; i < count; i++) {
        s[t] = x[i * 64 + t];
        __syncthreads();
        sum += s[63 - t];
        sync<FIXED>();
    }
    y[t] = sum;
}
extern "C" __global__ void tiles_racy(const u32* x, u32* y, int count) { tiles<false>(x, y, count); }
extern "C" __global__ void tiles_clean(const u32* x, u32* y, int count) { tiles<true>(x, y, count); }

// Lanes of one warp that exchange through memory.
template <bool FIXED> __device__ void lanes(const u32* x, u32* y)
{
    __shared__ u32 s[32];
    int t = threadIdx.x;
    s[t] = x[t];
    if (FIXED) __syncwarp();
    y[t] = s[t ^ 1];
}
extern "C" __global__ void lanes_racy(const u32* x, u32* y) { lanes<false>(x, y); }
extern "C" __global__ void lanes_clean(const u32* x, u32* y) { lanes<true>(x, y); }

// Two lanes of one store share an address.
template <bool FIXED> __device__ void collide(const u32* x, u32* y)
{
    __shared__ u32 s[16];
    int t = threadIdx.x;
    s[t / 2] = FIXED ? x[t / 2] : x[t];
    __syncthreads();
    y[t] = s[t / 2];
}
extern "C" __global__ void collide_racy(const u32* x, u32* y) { collide<false>(x, y); }
extern "C" __global__ void collide_clean(const u32* x, u32* y) { collide<true>(x, y); }

// A histogram of global bins, without and with atomics.
template <bool FIXED> __device__ void histogram(const u32* x, u32* bins)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (FIXED)
        atomicAdd(&bins[x[t] & 7], 1u);
    else
        bins[x[t] & 7]++;
}
extern "C" __global__ void histogram_racy(const u32* x, u32* bins) { histogram<false>(x, bins); }
extern "C" __global__ void histogram_clean(const u32* x, u32* bins) { histogram<true>(x, bins); }

// Grid barriers: how each arrives and how it waits.
enum Arrive { RELEASE, RELAXED, FENCED, UNFENCED };
enum Poll { ACQUIRE, VOLATILE_FENCED, VOLATILE, NONE };

template <Arrive ARRIVE, Poll WAIT> __device__ void grid(u32* arrived, u32* data, u32* out)
{
    if (threadIdx.x == 0) data[blockIdx.x] = blockIdx.x + 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        if (ARRIVE == RELEASE)
            asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
        if (ARRIVE == RELAXED)
            asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
        if (ARRIVE == FENCED) __threadfence();
        if (ARRIVE == FENCED || ARRIVE == UNFENCED) atomicAdd(arrived, 1u);
        u32 seen = WAIT == NONE ? gridDim.x : 0;
        while (seen < gridDim.x) {
            if (WAIT == ACQUIRE)
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                             : "=r"(seen) : "l"(arrived) : "memory");
            if (WAIT == VOLATILE || WAIT == VOLATILE_FENCED) seen = *(volatile u32*)arrived;
        }
        if (WAIT == VOLATILE_FENCED) __threadfence();
    }
    __syncthreads();
    if (threadIdx.x == 32) out[blockIdx.x] = data[(blockIdx.x + 1) % gridDim.x];
}
extern "C" __global__ void grid_clean(u32* a, u32* d, u32* o) { grid<RELEASE, ACQUIRE>(a, d, o); }
extern "C" __global__ void grid_fenced(u32* a, u32* d, u32* o) { grid<FENCED, VOLATILE_FENCED>(a, d, o); }
extern "C" __global__ void grid_relaxed(u32* a, u32* d, u32* o) { grid<RELAXED, ACQUIRE>(a, d, o); }
extern "C" __global__ void grid_unfenced(u32* a, u32* d, u32* o) { grid<UNFENCED, ACQUIRE>(a, d, o); }
extern "C" __global__ void grid_no_acquire(u32* a, u32* d, u32* o) { grid<RELEASE, VOLATILE>(a, d, o); }
extern "C" __global__ void grid_no_wait(u32* a, u32* d, u32* o) { grid<RELEASE, NONE>(a, d, o); }

// The last block to finish adds up what all wrote, as reductions in one launch do.
template <bool FIXED> __device__ void last(u32* ticket, u32* partial, u32* out)
{
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = blockIdx.x + 1;
        if (FIXED) __threadfence();
        is_last = atomicAdd(ticket, 1u) == gridDim.x - 1;
        if (FIXED) __threadfence();
    }
    __syncthreads();
    if (is_last && threadIdx.x == 0) {
        u32 sum = 0;
        for (int i = 0; i < gridDim.x; i++) sum += partial[i];
        *out = sum;
    }
}
extern "C" __global__ void last_racy(u32* t, u32* p, u32* o) { last<false>(t, p, o); }
extern "C" __global__ void last_clean(u32* t, u32* p, u32* o) { last<true>(t, p, o); }

// Warps that pass work along with named barriers.
template <bool FIXED> __device__ void named(const u32* x, u32* y)
{
    __shared__ u32 s[32];
    int t = threadIdx.x;
    if (t < 32) {
        s[t] = x[t];
        if (FIXED) asm volatile("bar.arrive 1, 64;" ::: "memory");
        else asm volatile("bar.arrive 2, 64;" ::: "memory");
    } else {
        if (FIXED) asm volatile("bar.sync 1, 64;" ::: "memory");
        y[t - 32] = s[t - 32];
    }
}
extern "C" __global__ void named_racy(const u32* x, u32* y) { named<false>(x, y); }
extern "C" __global__ void named_clean(const u32* x, u32* y) { named<true>(x, y); }
