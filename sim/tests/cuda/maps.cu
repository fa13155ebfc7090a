// targets: sm_90a sm_120a
// Tensor maps that the kernel itself changes, with and without what releases and acquires them.

typedef unsigned int word;
typedef unsigned long long wide;

constexpr int ROWS = 8, COLUMNS = 64, BYTES = ROWS * COLUMNS * 2;

__device__ word shared_address(const void* pointer)
{
    return (word)__cvta_generic_to_shared(pointer);
}

__device__ void acquire(const void* map)
{
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

__device__ void release()
{
    asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
}

// A warp makes `map` of the model, with another address.
__device__ void change_by_copy(const word* model, word* map, const void* data, word* staged)
{
    const int lane = threadIdx.x % 32;
    staged[lane] = model[lane];
    __syncwarp();
    if (lane == 0)
        asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(
                         shared_address(staged)),
                     "l"(data)
                     : "memory");
    __syncwarp();
    asm volatile(
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(
            map),
        "r"(shared_address(staged))
        : "memory");
}

__device__ void change_in_place(const word* model, word* map, const void* data)
{
    const int lane = threadIdx.x % 32;
    map[lane] = model[lane];
    __syncwarp();
    if (lane == 0)
        asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(map), "l"(data) : "memory");
    __syncwarp();
}

// A thread copies a tile by the map.
__device__ void fetch(const word* map, void* tile, wide* barrier)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(BYTES)
                 : "memory");
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2}], [%3];" ::
            "r"(shared_address(tile)),
        "l"(map), "r"(0), "r"(shared_address(barrier))
        : "memory");
}

enum class Change { COPIED, RELEASED, UNRELEASED };
enum class Acquire { NEVER, FIRST, BY_COPIER, BY_WRITER };

template <Change CHANGE, Acquire ACQUIRE, int COPIER>
__device__ void run(const word* model, word* map, const void* data, word* out)
{
    __shared__ alignas(1024) word tile[BYTES / 4];
    __shared__ alignas(128) word staged[32];
    __shared__ wide barrier;
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::"r"(
                         shared_address(&barrier))
                     : "memory");
    if (threadIdx.x < 32) {
        if (ACQUIRE == Acquire::FIRST) acquire(map);
        if (CHANGE == Change::COPIED) change_by_copy(model, map, data, staged);
        if (CHANGE != Change::COPIED) change_in_place(model, map, data);
        if (CHANGE == Change::RELEASED) release();
        if (ACQUIRE == Acquire::BY_WRITER) acquire(map);
    }
    __syncthreads();
    if (threadIdx.x == COPIER) {
        if (ACQUIRE == Acquire::BY_COPIER) acquire(map);
        fetch(map, tile, &barrier);
    }
    word done = 0;
    while (!done)
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(shared_address(&barrier))
                     : "memory");
    // Of a row, the chunks of 16 bytes are swizzled.
    for (int i = threadIdx.x; i < BYTES / 4; i += 64) out[i] = tile[i ^ i / 32 % 8 * 4];
}

#define RUN(NAME, CHANGE, ACQUIRE, COPIER)                                                                            \
    extern "C" __global__ void NAME(const word* model, word* map, const void* data, word* out)                       \
    {                                                                                                                 \
        run<Change::CHANGE, Acquire::ACQUIRE, COPIER>(model, map, data, out);                                         \
    }
RUN(copied_clean, COPIED, BY_COPIER, 0)
RUN(copied_other_warp_clean, COPIED, BY_COPIER, 32)
RUN(copied_acquired_by_writer_clean, COPIED, BY_WRITER, 32)
RUN(released_clean, RELEASED, BY_COPIER, 32)
RUN(copied_racy, COPIED, NEVER, 0)
RUN(copied_acquired_first_racy, COPIED, FIRST, 0)
RUN(released_racy, RELEASED, NEVER, 32)
RUN(unreleased_racy, UNRELEASED, BY_COPIER, 32)
