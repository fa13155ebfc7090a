/* Kernels and variables that the program has registered, by every way of launching. */
#include "kernels.h"

#define COUNT 300

static unsigned *x, *y;

/* Whether all is as after a launch with an offset, from then on as before it. */
static void added(unsigned by)
{
    unsigned back[COUNT + 1];
    WORKS(cudaMemcpy(back, y, sizeof back, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < COUNT; i++) {
        HOLDS(back[i] == 3 * i + by);
    }
    HOLDS(back[COUNT] == 0xeeeeeeee);
    WORKS(cudaMemset(y, 0xee, sizeof back));
}

static void by_every_way(void)
{
    WORKS(add_12(y, x, COUNT, 2, 256, 0, NULL));
    added(100);
    /* As `<<<2, 256>>>` is compiled for CUDA 13. */
    static cudaKernel_t handle;
    WORKS(__cudaGetKernel(&handle, (const void *)add));
    dim3 grid = {2, 1, 1}, block = {256, 1, 1};
    HOLDS(__cudaPushCallConfiguration(grid, block, 64, cudaStreamPerThread) == 0);
    dim3 popped_grid, popped_block;
    size_t shared;
    cudaStream_t stream;
    WORKS(__cudaPopCallConfiguration(&popped_grid, &popped_block, &shared, &stream));
    HOLDS(popped_grid.x == 2 && popped_block.x == 256 && popped_block.z == 1);
    HOLDS(shared == 64 && stream == cudaStreamPerThread);
    GIVES(cudaErrorMissingConfiguration,
          __cudaPopCallConfiguration(&popped_grid, &popped_block, &shared, &stream));
    int n = COUNT;
    void *values[] = {&y, &x, &n};
    WORKS(__cudaLaunchKernel(handle, grid, block, values, shared, stream));
    added(100);
    WORKS(cudaLaunchCooperativeKernel((const void *)add, grid, block, values, 0, NULL));
    added(100);
    cudaLaunchAttribute attribute = {2, 0, {1}};
    cudaLaunchConfig_t config = {grid, block, 0, NULL, &attribute, 1};
    WORKS(cudaLaunchKernelExC(&config, (const void *)add, values));
    added(100);
    cudaKernel_t kernel;
    WORKS(cudaGetKernel(&kernel, (const void *)add));
    WORKS(cudaLaunchKernel((const void *)kernel, grid, block, values, 0, NULL));
    added(100);
}

static void with_variables(void)
{
    unsigned value;
    void *at;
    size_t bytes;
    WORKS(cudaMemcpyFromSymbol(&value, &calls, 4, 0, cudaMemcpyDeviceToHost));
    HOLDS(value == 10);
    /* Managed: the host's pointer is to what kernels count in. */
    HOLDS(__cudaInitModule(kernels));
    HOLDS(*seen == 12);
    *seen = 40;
    value = 3;
    WORKS(cudaMemcpyToSymbol(&offset, &value, 4, 0, cudaMemcpyHostToDevice));
    WORKS(add_12(y, x, COUNT, 2, 256, 0, NULL));
    added(3);
    HOLDS(*seen == 41);
    WORKS(cudaGetSymbolAddress(&at, &calls));
    WORKS(cudaGetSymbolSize(&bytes, &calls));
    WORKS(cudaMemcpy(&value, at, bytes, cudaMemcpyDeviceToHost));
    HOLDS(bytes == 4 && value == 11);
    GIVES(cudaErrorInvalidValue, cudaMemcpyToSymbol(&offset, &value, 4, 1, 1));
    GIVES(cudaErrorInvalidMemcpyDirection, cudaMemcpyToSymbol(&offset, &value, 4, 0, 2));
    GIVES(cudaErrorInvalidSymbol, cudaGetSymbolAddress(&at, &x));
}

static void with_attributes(void)
{
    cudaFuncAttributes of;
    const char *name;
    int blocks;
    WORKS(cudaFuncGetAttributes(&of, (const void *)add));
    HOLDS(of.maxThreadsPerBlock == 256 && of.constSizeBytes == 4 && of.ptxVersion == 75);
    HOLDS(of.maxDynamicSharedSizeBytes == 48 << 10 && of.numRegs > 0);
    WORKS(cudaFuncSetAttribute((const void *)add, 8, 50 << 10));
    WORKS(cudaFuncGetAttributes(&of, (const void *)add));
    HOLDS(of.maxDynamicSharedSizeBytes == 50 << 10);
    WORKS(cudaFuncGetName(&name, (const void *)add));
    HOLDS(strcmp(name, "add") == 0);
    WORKS(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void *)add, 256, 0));
    HOLDS(blocks >= 1 && blocks <= 32);
}

static void refused(void)
{
    void *values[] = {&y, &x, NULL};
    dim3 one = {1, 1, 1};
    GIVES(cudaErrorInvalidConfiguration, add_12(y, x, 1, 0, 32, 0, NULL));
    GIVES(cudaErrorInvalidConfiguration, add_12(y, x, 1, 1, 0, 0, NULL));
    GIVES(cudaErrorInvalidConfiguration, add_12(y, x, 1, 1, 1025, 0, NULL));
    GIVES(cudaErrorInvalidValue, add_12(y, x, 1, 1, 257, 0, NULL));
    GIVES(cudaErrorInvalidValue, add_12(y, x, 1, 1, 32, 51 << 10, NULL));
    GIVES(cudaErrorInvalidDeviceFunction,
          cudaLaunchKernel((const void *)unknown, one, one, values, 0, NULL));
    GIVES(500, cudaLaunchKernel((const void *)missing, one, one, values, 0, NULL));
    GIVES(cudaErrorInvalidDeviceFunction, cudaLaunchKernel(NULL, one, one, values, 0, NULL));
    /* Images that are of no use are so once something of them is used. */
    struct { char *made; int code; } images[] = {
        {container(), cudaErrorNoKernelImageForDevice},
        {add_ptx(container(), HEADER("sm_130"), 130), cudaErrorNoKernelImageForDevice},
        {add_ptx(container(), HEADER("sm_80a"), 80), cudaErrorNoKernelImageForDevice},
        {add_ptx(container(), HEADER("sm_80") "nonsense", 80), cudaErrorInvalidPtx},
    };
    for (int i = 0; i < 4; i++) {
        void **binary = register_container(images[i].made);
        register_kernel(binary, unknown, "unknown");
        GIVES(images[i].code, cudaLaunchKernel((const void *)unknown, one, one, values, 0, NULL));
        __cudaUnregisterFatBinary(binary);
    }
}

int main(void)
{
    unsigned from[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        from[i] = 3 * i;
    }
    WORKS(cudaMalloc((void **)&x, sizeof from));
    WORKS(cudaMalloc((void **)&y, sizeof from + 4));
    WORKS(cudaMemcpy(x, from, sizeof from, cudaMemcpyHostToDevice));
    WORKS(cudaMemset(y, 0xee, sizeof from + 4));
    by_every_way();
    with_variables();
    with_attributes();
    refused();
    /* A device that is reset has the program's kernels again, with their first values. */
    WORKS(cudaDeviceReset());
    WORKS(cudaMalloc((void **)&x, sizeof from));
    WORKS(cudaMalloc((void **)&y, sizeof from + 4));
    WORKS(cudaMemcpy(x, from, sizeof from, cudaMemcpyHostToDevice));
    WORKS(cudaMemset(y, 0xee, sizeof from + 4));
    WORKS(add_12(y, x, COUNT, 2, 256, 0, NULL));
    added(100);
    return 0;
}
