// targets: sm_90a sm_120
// Launches that may begin before the launch before them has ended: who waits for it, and when.

typedef unsigned int word;

__device__ void wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;"); }

__device__ word address_of(const void* shared) { return word(__cvta_generic_to_shared(shared)); }

extern "C" __global__ void each_clean(const word* x, word* y)
{
    wait();
    launch_dependents();
    y[threadIdx.x] = x[threadIdx.x] + 1;
}

// One thread waits for all of its block.
extern "C" __global__ void barrier_clean(const word* x, word* y)
{
    if (threadIdx.x == 40) wait();
    __syncthreads();
    y[threadIdx.x] = x[threadIdx.x] + 1;
}

// One lane waits for its warp.
extern "C" __global__ void lane_clean(const word* x, word* y)
{
    if (threadIdx.x % 32 == 3) wait();
    __syncwarp();
    y[threadIdx.x] = x[threadIdx.x] + 1;
}

// A thread waits and copies; who waits for the copy is behind its wait.
extern "C" __global__ void copied_clean(const word* x, word* y)
{
    __shared__ alignas(16) word tile[64];
    __shared__ alignas(8) unsigned long long full;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address_of(&full)));
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        wait();
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(address_of(&full)) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];"
                     ::"r"(address_of(tile)), "l"(x), "r"(address_of(&full)) : "memory");
    }
    word done = 0;
    while (!done) {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done) : "r"(address_of(&full)) : "memory");
    }
    y[threadIdx.x] = tile[threadIdx.x] + 1;
}

extern "C" __global__ void never_early(const word* x, word* y) { y[threadIdx.x] = x[threadIdx.x] + 1; }

extern "C" __global__ void load_early(const word* x, word* y)
{
    const word value = *(volatile const word*)(x + threadIdx.x);
    wait();
    y[threadIdx.x] = value + 1;
}

// What it overwrites may still be read.
extern "C" __global__ void store_early(const word* x, word* y)
{
    *(volatile word*)(y + threadIdx.x) = 1;
    wait();
    y[threadIdx.x] = x[threadIdx.x] + 1;
}

extern "C" __global__ void add_early(const word* x, word* y)
{
    atomicAdd(y + 64, 1);
    wait();
    y[threadIdx.x] = x[threadIdx.x] + 1;
}

// One thread waits, the others do not wait for it.
extern "C" __global__ void alone_early(const word* x, word* y)
{
    if (threadIdx.x == 40) wait();
    y[threadIdx.x] = x[threadIdx.x] + 1;
}

extern "C" __global__ void copy_early(const word* x, word* y)
{
    __shared__ word tile[64];
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address_of(tile + threadIdx.x)), "l"(x + threadIdx.x) : "memory");
    wait();
    asm volatile("cp.async.wait_all;" ::: "memory");
    y[threadIdx.x] = tile[threadIdx.x] + 1;
}

extern "C" __global__ void bulk_early(const word* x, word* y)
{
    __shared__ alignas(16) word tile[64];
    __shared__ alignas(8) unsigned long long full;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address_of(&full)));
        asm volatile("fence.mbarrier_init.release.cluster;");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(address_of(&full)) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];"
                     ::"r"(address_of(tile)), "l"(x), "r"(address_of(&full)) : "memory");
    }
    __syncthreads();
    wait();
    word done = 0;
    while (!done) {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done) : "r"(address_of(&full)) : "memory");
    }
    y[threadIdx.x] = tile[threadIdx.x] + 1;
}
