// targets: sm_90a sm_120
// Asynchronous copies, barriers in shared memory, clusters.

typedef unsigned int word;
typedef unsigned long long wide;

__device__ word shared_address(const void* pointer) {
    return (word)__cvta_generic_to_shared(pointer);
}

__device__ void init(word barrier, word count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ void expect(word barrier, word bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

__device__ void wait(word barrier, word parity) {
    asm volatile(
        "{\n.reg .pred done;\nAGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra AGAIN;\n}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

__device__ void load_bulk(word to, const void* from, word bytes, word barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

__device__ void commit_and_wait() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

__device__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ word map_to(word address, word rank) {
    word out;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(out) : "r"(address), "r"(rank));
    return out;
}

__device__ word cluster_rank() {
    word out;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(out));
    return out;
}

// Sums of tiles of 256 floats that arrive by bulk copies, two stages deep; one thread copies.
extern "C" __global__ void pipeline(const float* in, float* out, int tiles) {
    __shared__ __align__(128) float stage[2][256];
    __shared__ __align__(8) wide full[2], empty[2];
    const int thread = threadIdx.x;
    if (thread == 0) {
        for (int i = 0; i < 2; i++) {
            init(shared_address(&full[i]), 1);
            init(shared_address(&empty[i]), 256);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (thread == 256) {
        for (int tile = 0; tile < tiles; tile++) {
            int slot = tile % 2;
            wait(shared_address(&empty[slot]), (tile / 2 & 1) ^ 1);
            expect(shared_address(&full[slot]), 1024);
            load_bulk(shared_address(stage[slot]), in + tile * 256, 1024,
                      shared_address(&full[slot]));
        }
    } else if (thread < 256) {
        float sum = 0;
        for (int tile = 0; tile < tiles; tile++) {
            int slot = tile % 2;
            wait(shared_address(&full[slot]), tile / 2 & 1);
            sum += stage[slot][thread];
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(
                             shared_address(&empty[slot]))
                         : "memory");
        }
        out[thread] = sum;
    }
}

// Copies a row out by a bulk store, and adds one into global memory by a bulk reduction.
extern "C" __global__ void store_and_reduce(float* stored, float* reduced) {
    __shared__ __align__(128) float row[128];
    row[threadIdx.x] = threadIdx.x + 1000 * blockIdx.x;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                         stored + blockIdx.x * 128),
                     "r"(shared_address(row)), "r"(512)
                     : "memory");
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                         reduced),
                     "r"(shared_address(row)), "r"(512)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// Copies by cp.async: 4, 8 and 16 bytes, fewer source bytes, an ignored source; a barrier counts.
extern "C" __global__ void small_copies(const unsigned char* in, unsigned char* out) {
    __shared__ __align__(16) unsigned char to[32][48];
    __shared__ __align__(8) wide done;
    const int lane = threadIdx.x;
    for (int i = 0; i < 48; i++) to[lane][i] = 0xee;
    if (lane == 0) init(shared_address(&done), 32);
    __syncthreads();
    word at = shared_address(to[lane]);
    const unsigned char* from = in + lane * 48;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(at + 8), "l"(from + 8),
                 "r"(lane % 9)
                 : "memory");
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at + 16), "l"(from + 16),
                 "r"(lane % 17)
                 : "memory");
    asm volatile(
        "{\n.reg .pred ignore;\nsetp.ne.b32 ignore, %2, 0;\n"
        "cp.async.ca.shared.global [%0], [%1], 16, ignore;\n}" ::"r"(at + 32),
        "l"(from + 32), "r"(lane & 1)
        : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&done))
                 : "memory");
    wait(shared_address(&done), 0);
    for (int i = 0; i < 48; i++) out[lane * 48 + i] = to[lane][i];
}

// Every block of a cluster sums the first words of all of them, then tells its right neighbour.
extern "C" __global__ void __cluster_dims__(4, 1, 1) neighbours(word* out) {
    __shared__ word mine, told;
    __shared__ __align__(8) wide arrived;
    word rank = cluster_rank();
    if (threadIdx.x == 0) {
        mine = 10 * blockIdx.x + 1;
        told = 0;
        init(shared_address(&arrived), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        expect(shared_address(&arrived), 4);
    }
    cluster_sync();
    word sum = 0;
    for (word other = 0; other < 4; other++) {
        word value;
        asm volatile("ld.shared::cluster.u32 %0, [%1];"
                     : "=r"(value)
                     : "r"(map_to(shared_address(&mine), other)));
        sum += value;
    }
    cluster_sync();
    if (threadIdx.x == 0) {
        word next = (rank + 1) % 4;
        asm volatile(
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(
                map_to(shared_address(&told), next)),
            "r"(100 + rank), "r"(map_to(shared_address(&arrived), next))
            : "memory");
        asm volatile("red.shared::cluster.add.u32 [%0], %1;" ::"r"(
                         map_to(shared_address(&mine), next)),
                     "r"(7)
                     : "memory");
    }
    wait(shared_address(&arrived), 0);
    cluster_sync();
    if (threadIdx.x == 0) {
        out[blockIdx.x * 3] = sum;
        out[blockIdx.x * 3 + 1] = told;
        out[blockIdx.x * 3 + 2] = mine;
    }
}

// One block of each pair copies to both.
extern "C" __global__ void __cluster_dims__(2, 1, 1) multicast(const word* in, word* out) {
    __shared__ __align__(128) word row[64];
    __shared__ __align__(8) wide full;
    if (threadIdx.x == 0) {
        init(shared_address(&full), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        expect(shared_address(&full), 256);
    }
    cluster_sync();
    if (threadIdx.x == 0 && cluster_rank() == 0) {
        unsigned short both = 3;
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
            "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(row)),
            "l"(in + blockIdx.x * 64), "r"(256), "r"(shared_address(&full)), "h"(both)
            : "memory");
    }
    wait(shared_address(&full), 0);
    out[blockIdx.x * 64 + threadIdx.x] = row[threadIdx.x] + cluster_rank();
    cluster_sync();
}

struct alignas(64) TensorMap {
    wide opaque[16];
};

// A box of a matrix into shared memory and out to `out` as it lies there, doubled into another
// matrix through the same box, and added to a third.
extern "C" __global__ void tiles(const __grid_constant__ TensorMap in,
                                 const __grid_constant__ TensorMap stored,
                                 const __grid_constant__ TensorMap reduced, int x, int y,
                                 float* out) {
    extern __shared__ __align__(1024) float box[];
    __shared__ __align__(8) wide full;
    if (threadIdx.x == 0) {
        init(shared_address(&full), 1);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("prefetch.tensormap [%0];" ::"l"(&in) : "memory");
        expect(shared_address(&full), 8 * 32 * 4);
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
            "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(box)),
            "l"(&in), "r"(x), "r"(y), "r"(shared_address(&full))
            : "memory");
    }
    __syncthreads();
    wait(shared_address(&full), 0);
    for (int i = threadIdx.x; i < 256; i += blockDim.x) {
        out[i] = box[i];
        box[i] *= 2;
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile(
            "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
                &stored),
            "r"(x), "r"(y), "r"(shared_address(box))
            : "memory");
        asm volatile(
            "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], "
            "[%3];" ::"l"(&reduced),
            "r"(x), "r"(y), "r"(shared_address(box))
            : "memory");
        commit_and_wait();
    }
}

// A box of a tensor of four dimensions.
extern "C" __global__ void tile_4d(const __grid_constant__ TensorMap in, int4 at, int bytes,
                                   word* out) {
    extern __shared__ __align__(1024) word box4[];
    __shared__ __align__(8) wide full;
    if (threadIdx.x == 0) {
        init(shared_address(&full), 1);
        expect(shared_address(&full), bytes);
        asm volatile(
            "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
            "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared_address(box4)),
            "l"(&in), "r"(at.x), "r"(at.y), "r"(at.z), "r"(at.w), "r"(shared_address(&full))
            : "memory");
    }
    __syncthreads();
    wait(shared_address(&full), 0);
    for (int i = threadIdx.x; i < bytes / 4; i += blockDim.x) out[i] = box4[i];
}

extern "C" __device__ int printf(const char*, ...);

// Prints, elects a lane, and asks for the sizes of shared memory.
extern "C" __global__ void small_things(word* out, float x) {
    word lane = threadIdx.x, leader, chosen, dynamic;
    asm volatile(
        "{\n.reg .pred p;\nelect.sync %0|p, 0xffffffff;\nselp.u32 %1, 1, 0, p;\n}"
        : "=r"(leader), "=r"(chosen));
    asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(dynamic));
    if (chosen) printf("lane %u of %5.2f: %s %lld %c|%-4d|%04x %%\n", lane, x, "words", -5ll, 'c', 7, 255);
    out[lane] = leader * 1000 + chosen * 100 + dynamic;
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;");
}
