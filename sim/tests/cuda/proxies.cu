// targets: sm_90a sm_120
// Stores of threads that TMA copies access, with and without the fences between the proxies.

typedef unsigned int word;
typedef unsigned long long wide;

constexpr int WORDS = 128;
constexpr int BYTES = 4 * WORDS;

enum class Fence { NONE, ALL, SHARED, GLOBAL };

template <Fence FENCE> __device__ void fence()
{
    if (FENCE == Fence::ALL) asm volatile("fence.proxy.async;" ::: "memory");
    if (FENCE == Fence::SHARED) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    if (FENCE == Fence::GLOBAL) asm volatile("fence.proxy.async.global;" ::: "memory");
}

__device__ word shared_address(const void* pointer)
{
    return (word)__cvta_generic_to_shared(pointer);
}

__device__ void store_bulk(word* to, const word* from)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)),
                 "r"(BYTES)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
}

// The threads fill shared memory, which thread 0 copies out. Who fences, before the barrier and after it.
template <Fence BEFORE, Fence AFTER, int AFTER_FROM, int AFTER_TO> __device__ void copy_out(word* out)
{
    __shared__ alignas(128) word tile[WORDS];
    tile[threadIdx.x] = threadIdx.x;
    fence<BEFORE>();
    __syncthreads();
    if (threadIdx.x >= AFTER_FROM && threadIdx.x < AFTER_TO) fence<AFTER>();
    if (threadIdx.x == 0) store_bulk(out, tile);
}

extern "C" __global__ void out_fenced_clean(word*, word*, word* out) { copy_out<Fence::ALL, Fence::NONE, 0, 0>(out); }
extern "C" __global__ void out_fenced_near_clean(word*, word*, word* out)
{
    copy_out<Fence::SHARED, Fence::NONE, 0, 0>(out);
}
extern "C" __global__ void out_fenced_by_reader_clean(word*, word*, word* out)
{
    copy_out<Fence::NONE, Fence::ALL, 0, 1>(out);
}
extern "C" __global__ void out_unfenced_racy(word*, word*, word* out) { copy_out<Fence::NONE, Fence::NONE, 0, 0>(out); }
extern "C" __global__ void out_fenced_elsewhere_racy(word*, word*, word* out)
{
    copy_out<Fence::GLOBAL, Fence::NONE, 0, 0>(out);
}
// The writers fence, but behind the barrier that tells thread 0 of their stores.
extern "C" __global__ void out_fenced_late_racy(word*, word*, word* out)
{
    copy_out<Fence::NONE, Fence::ALL, 32, WORDS>(out);
}

// Block 0 fills global memory and tells block 1, whose thread 0 copies it to shared memory.
template <Fence WRITER, Fence READER> __device__ void copy_in(word* data, word* flag, word* out)
{
    __shared__ alignas(128) word tile[WORDS];
    __shared__ wide barrier;
    if (blockIdx.x == 0) {
        data[threadIdx.x] = threadIdx.x;
        fence<WRITER>();
        __syncthreads();
        if (threadIdx.x == 0) asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag) : "memory");
        return;
    }
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::"r"(
                         shared_address(&barrier))
                     : "memory");
        word seen;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        } while (seen == 0);
        fence<READER>();
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)), "r"(BYTES)
                     : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                shared_address(tile)),
            "l"(data), "r"(BYTES), "r"(shared_address(&barrier))
            : "memory");
    }
    __syncthreads();
    word done = 0;
    while (!done)
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(shared_address(&barrier))
                     : "memory");
    out[threadIdx.x] = tile[threadIdx.x];
}

extern "C" __global__ void in_fenced_clean(word* data, word* flag, word* out)
{
    copy_in<Fence::ALL, Fence::NONE>(data, flag, out);
}
extern "C" __global__ void in_fenced_global_clean(word* data, word* flag, word* out)
{
    copy_in<Fence::GLOBAL, Fence::NONE>(data, flag, out);
}
extern "C" __global__ void in_fenced_by_reader_clean(word* data, word* flag, word* out)
{
    copy_in<Fence::NONE, Fence::GLOBAL>(data, flag, out);
}
extern "C" __global__ void in_unfenced_racy(word* data, word* flag, word* out)
{
    copy_in<Fence::NONE, Fence::NONE>(data, flag, out);
}
extern "C" __global__ void in_fenced_elsewhere_racy(word* data, word* flag, word* out)
{
    copy_in<Fence::SHARED, Fence::SHARED>(data, flag, out);
}

// A thread stores to where it then copies to.
template <Fence FENCE> __device__ void overwrite(word* out)
{
    __shared__ alignas(128) word tile[WORDS];
    tile[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = 7;
    fence<Fence::SHARED>();
    fence<FENCE>();
    __syncthreads();
    if (threadIdx.x == 0) store_bulk(out, tile);
}
extern "C" __global__ void over_fenced_clean(word*, word*, word* out) { overwrite<Fence::GLOBAL>(out); }
extern "C" __global__ void over_unfenced_racy(word*, word*, word* out) { overwrite<Fence::NONE>(out); }
