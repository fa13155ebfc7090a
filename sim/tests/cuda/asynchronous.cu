// targets: sm_90a sm_120
// Asynchronous copies with planted mistakes, each beside its correct form: what their completion
// orders, and what they access in global memory.

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
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ void expect(wide* barrier, word bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(barrier)), "r"(bytes) : "memory");
}

__device__ void wait(wide* barrier, word parity)
{
    asm volatile(
        "{\n.reg .pred done;\nAGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra AGAIN;\n}" ::"r"(
            shared_address(barrier)), "r"(parity) : "memory");
}

__device__ void load_bulk(void* to, const void* from, word bytes, wide* barrier)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier)) : "memory");
}

__device__ void store_bulk(void* to, const void* from, word bytes)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(
                     shared_address(from)), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

__device__ void copy_16(void* to, const void* from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from)
                 : "memory");
}

__device__ void copies_wait()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
}

__device__ void grid_barrier(word* arrived)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        word seen;
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
        } while (seen < gridDim.x);
    }
    __syncthreads();
}

// One barrier for two copies: it must expect the bytes of both.
template <bool FIXED> __device__ void two_copies(const word* x, word* y)
{
    __shared__ __align__(128) word a[64], b[64];
    __shared__ __align__(8) wide barrier;
    if (threadIdx.x == 0) init(&barrier, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        expect(&barrier, FIXED ? 512 : 256);
        load_bulk(a, x, 256, &barrier);
        load_bulk(b, x + 64, 256, &barrier);
    }
    wait(&barrier, 0);
    y[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x];
    __syncthreads();
    if (!FIXED && threadIdx.x == 0) {
        expect(&barrier, 256);
        wait(&barrier, 1);
    }
}
extern "C" __global__ void two_copies_racy(const word* x, word* y) { two_copies<false>(x, y); }
extern "C" __global__ void two_copies_clean(const word* x, word* y) { two_copies<true>(x, y); }

// A copy's completion does not release what its thread stores after it was issued.
template <bool FIXED> __device__ void beside(const word* x, word* y)
{
    __shared__ __align__(128) word a[64];
    __shared__ __align__(8) wide barrier;
    __shared__ word flag;
    if (threadIdx.x == 0) init(&barrier, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        if (FIXED) flag = x[3];
        expect(&barrier, 256);
        load_bulk(a, x, 256, &barrier);
        if (!FIXED) flag = x[3];
    }
    wait(&barrier, 0);
    y[threadIdx.x] = a[threadIdx.x] + (threadIdx.x < 32 ? 0 : flag);
}
extern "C" __global__ void beside_racy(const word* x, word* y) { beside<false>(x, y); }
extern "C" __global__ void beside_clean(const word* x, word* y) { beside<true>(x, y); }

// Nor does an arrival that follows copies release what is stored after it.
template <bool FIXED> __device__ void arrives(const word* x, word* y)
{
    __shared__ __align__(128) word a[256];
    __shared__ __align__(8) wide barrier;
    __shared__ word flags[64];
    if (threadIdx.x == 0) init(&barrier, 64);
    __syncthreads();
    copy_16(&a[threadIdx.x * 4], x + threadIdx.x * 4);
    if (FIXED) flags[threadIdx.x] = x[threadIdx.x];
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                     shared_address(&barrier)) : "memory");
    if (!FIXED) flags[threadIdx.x] = x[threadIdx.x];
    wait(&barrier, 0);
    y[threadIdx.x] = a[255 - threadIdx.x] + flags[63 - threadIdx.x];
}
extern "C" __global__ void arrives_racy(const word* x, word* y) { arrives<false>(x, y); }
extern "C" __global__ void arrives_clean(const word* x, word* y) { arrives<true>(x, y); }

// Blocks copy what other blocks store.
template <bool FIXED> __device__ void fetched(word* arrived, word* data, word* out)
{
    __shared__ __align__(128) word a[64];
    data[blockIdx.x * 64 + threadIdx.x] = threadIdx.x;
    if (FIXED) grid_barrier(arrived);
    const word* from = data + (blockIdx.x + 1) % gridDim.x * 64;
    if (threadIdx.x < 16) copy_16(&a[threadIdx.x * 4], from + threadIdx.x * 4);
    copies_wait();
    __syncthreads();
    out[blockIdx.x * 64 + threadIdx.x] = a[threadIdx.x];
}
extern "C" __global__ void fetched_racy(word* arrived, word* data, word* out)
{
    fetched<false>(arrived, data, out);
}
extern "C" __global__ void fetched_clean(word* arrived, word* data, word* out)
{
    fetched<true>(arrived, data, out);
}

// The same by bulk copies.
template <bool FIXED> __device__ void loaded(word* arrived, word* data, word* out)
{
    __shared__ __align__(128) word a[64];
    __shared__ __align__(8) wide barrier;
    if (threadIdx.x == 0) init(&barrier, 1);
    data[blockIdx.x * 64 + threadIdx.x] = threadIdx.x;
    asm volatile("fence.proxy.async.global;" ::: "memory");
    if (FIXED) grid_barrier(arrived);
    __syncthreads();
    if (threadIdx.x == 0) {
        expect(&barrier, 256);
        load_bulk(a, data + (blockIdx.x + 1) % gridDim.x * 64, 256, &barrier);
    }
    wait(&barrier, 0);
    out[blockIdx.x * 64 + threadIdx.x] = a[threadIdx.x];
}
extern "C" __global__ void loaded_racy(word* arrived, word* data, word* out)
{
    loaded<false>(arrived, data, out);
}
extern "C" __global__ void loaded_clean(word* arrived, word* data, word* out)
{
    loaded<true>(arrived, data, out);
}

// Blocks store to one place by bulk copies, and to a place each.
template <bool FIXED> __device__ void stored(word* data)
{
    __shared__ __align__(128) word a[64];
    a[threadIdx.x] = blockIdx.x;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        store_bulk(data + (FIXED ? blockIdx.x * 64 : 0), a, 256);
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
extern "C" __global__ void stored_racy(word* data) { stored<false>(data); }
extern "C" __global__ void stored_clean(word* data) { stored<true>(data); }

// A bulk store is over when its group is waited for, not when its source was read.
template <bool FIXED> __device__ void handed(word* arrived, word* data, word* out)
{
    __shared__ __align__(128) word a[64];
    a[threadIdx.x] = threadIdx.x;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        store_bulk(data + blockIdx.x * 64, a, 256);
        if (FIXED) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        else asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
    grid_barrier(arrived);
    out[blockIdx.x * 64 + threadIdx.x] = data[(blockIdx.x + 1) % gridDim.x * 64 + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
extern "C" __global__ void handed_racy(word* arrived, word* data, word* out)
{
    handed<false>(arrived, data, out);
}
extern "C" __global__ void handed_clean(word* arrived, word* data, word* out)
{
    handed<true>(arrived, data, out);
}

// Sums of blocks by bulk reductions, which do not race with each other.
extern "C" __global__ void reduced_clean(word* data)
{
    __shared__ __align__(128) word a[64];
    a[threadIdx.x] = threadIdx.x;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], 256;" ::"l"(
                         data), "r"(shared_address(a)) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// Memory that nobody wrote, by cp.async.
extern "C" __global__ void unwritten_copy(const word* x, word* y, int used)
{
    __shared__ __align__(128) word a[128];
    if (threadIdx.x < 32) copy_16(&a[threadIdx.x * 4], x + threadIdx.x * 4);
    copies_wait();
    __syncthreads();
    if (threadIdx.x < used) y[threadIdx.x] = a[threadIdx.x] + 1;
}

// The same by a bulk copy.
extern "C" __global__ void unwritten_load(const word* x, word* y, int used)
{
    __shared__ __align__(128) word a[128];
    __shared__ __align__(8) wide barrier;
    if (threadIdx.x == 0) {
        init(&barrier, 1);
        expect(&barrier, 512);
        load_bulk(a, x, 512, &barrier);
    }
    __syncthreads();
    wait(&barrier, 0);
    if (threadIdx.x < used) y[threadIdx.x] = a[threadIdx.x] + 1;
}
