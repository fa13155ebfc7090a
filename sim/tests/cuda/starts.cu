// targets: sm_90a sm_120
// The start of a cluster, with planted mistakes, each beside its correct form.

typedef unsigned int word;
typedef unsigned long long wide;

__device__ word shared_address(const void* pointer)
{
    return (word)__cvta_generic_to_shared(pointer);
}

__device__ void init(wide* barrier, word count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)
                 : "memory");
}

__device__ void init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ void wait(wide* barrier, word parity)
{
    asm volatile(
        "{\n.reg .pred done;\nAGAIN:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n@!done bra AGAIN;\n}" ::"r"(
            shared_address(barrier)), "r"(parity) : "memory");
}

__device__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ void cluster_sync_relaxed()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ word of_peer(const void* pointer)
{
    word rank, out;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(out) : "r"(shared_address(pointer)), "r"(rank ^ 1));
    return out;
}

// Blocks store into each other before and after they know that the other runs.
template <bool FIXED> __device__ void stored(word* out)
{
    __shared__ word told;
    if (FIXED) cluster_sync();
    if (threadIdx.x == 0)
        asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(of_peer(&told)), "r"(blockIdx.x) : "memory");
    cluster_sync();
    if (threadIdx.x == 0) out[blockIdx.x] = told;
}
extern "C" __global__ void __cluster_dims__(2) stored_racy(word* out) { stored<false>(out); }
extern "C" __global__ void __cluster_dims__(2) stored_clean(word* out) { stored<true>(out); }

// Blocks arrive at each other's barrier; relaxed cluster barriers need the fence, others do not.
template <bool KNOWN, bool FENCED> __device__ void arrived(word* out)
{
    __shared__ __align__(8) wide barrier;
    if (threadIdx.x == 0) {
        init(&barrier, 1);
        if (FENCED) init_fence();
    }
    if (KNOWN) cluster_sync_relaxed();
    if (threadIdx.x == 0)
        asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                         of_peer(&barrier)) : "memory");
    __syncthreads();
    wait(&barrier, 0);
    out[blockIdx.x * 64 + threadIdx.x] = 1;
    cluster_sync();
}
extern "C" __global__ void __cluster_dims__(2) arrived_unfenced_racy(word* out) { arrived<true, false>(out); }
extern "C" __global__ void __cluster_dims__(2) arrived_clean(word* out) { arrived<true, true>(out); }

// Threads of a block use a barrier that one of them initialises.
template <bool FIXED> __device__ void used(word* out)
{
    __shared__ __align__(8) wide barrier;
    if (threadIdx.x == 0) init(&barrier, 32);
    if (FIXED) __syncthreads();
    // Nothing waits where the order is right by chance.
    if (threadIdx.x >= 32) {
        for (int i = 0; i < 200; i++) asm volatile("nanosleep.u32 100;" ::: "memory");
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
    }
    out[threadIdx.x] = 1;
}
extern "C" __global__ void used_racy(word* out) { used<false>(out); }
extern "C" __global__ void used_clean(word* out) { used<true>(out); }

// A copy completes on a barrier.
template <bool FIXED> __device__ void loaded(word* out)
{
    __shared__ __align__(8) wide barrier;
    __shared__ __align__(128) word a[64];
    if (threadIdx.x == 0) {
        init(&barrier, 1);
        if (FIXED) init_fence();
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(
                         shared_address(&barrier)) : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(
                shared_address(a)), "l"(out), "r"(shared_address(&barrier)) : "memory");
    }
    __syncthreads();
    wait(&barrier, 0);
    out[64 + threadIdx.x] = a[threadIdx.x];
}
extern "C" __global__ void loaded_unfenced(word* out) { loaded<false>(out); }
extern "C" __global__ void loaded_clean(word* out) { loaded<true>(out); }
