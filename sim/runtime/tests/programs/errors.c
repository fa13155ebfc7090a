/* The last error: kept, given once, of each thread; and what a lost device says. */
#include "kernels.h"

int main(void)
{
    int device = -1, count = 0, version = 0, wanted;
    size_t limit;
    WORKS(cudaGetDeviceCount(&count));
    WORKS(cudaGetDevice(&device));
    HOLDS(count == 1 && device == 0);
    GIVES(cudaErrorInvalidDevice, cudaSetDevice(1));
    GIVES(cudaErrorInvalidDevice, cudaSetDevice(-1));
    GIVES(cudaErrorInvalidDevice, cudaPeekAtLastError());
    /* What goes well does not change it. */
    WORKS(cudaSetDevice(0));
    GIVES(cudaErrorInvalidDevice, cudaPeekAtLastError());
    GIVES(cudaErrorInvalidDevice, cudaGetLastError());
    WORKS(cudaGetLastError());
    GIVES(cudaErrorInvalidValue, cudaGetDevice(NULL));
    GIVES(cudaErrorNotSupported, cudaMallocArray(NULL, NULL, 1, 1, 0));
    GIVES(cudaErrorNotSupported, cudaGetLastError());
    WORKS(cudaPeekAtLastError());

    struct { int code; const char *name, *text; } known[] = {
        {0, "cudaSuccess", "no error"},
        {2, "cudaErrorMemoryAllocation", "out of memory"},
        {9, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
        {98, "cudaErrorInvalidDeviceFunction", "invalid device function"},
        {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
        {12345, "unrecognized error code", "unrecognized error code"},
    };
    for (int i = 0; i < 6; i++) {
        HOLDS(strcmp(cudaGetErrorName(known[i].code), known[i].name) == 0);
        HOLDS(strcmp(cudaGetErrorString(known[i].code), known[i].text) == 0);
    }

    WORKS(cudaDriverGetVersion(&version));
    HOLDS(version == 13000);
    WORKS(cudaRuntimeGetVersion(&version));
    HOLDS(version == 13000);
    WORKS(cudaDeviceSetLimit(2, 1 << 20));
    WORKS(cudaDeviceGetLimit(&limit, 2));
    HOLDS(limit == 1 << 20);
    void *entry;
    WORKS(cudaGetDriverEntryPoint("cuInit", &entry, 0, &wanted));
    HOLDS(wanted == 0 && ((int (*)(unsigned))entry)(0) == 0);
    WORKS(cudaGetDriverEntryPoint("cuNothing", &entry, 0, &wanted));
    HOLDS(wanted == 1 && entry == NULL);

    /* A fault is learnt by whoever waits, and by everyone from then on. */
    dim3 one = {1, 1, 1};
    void *at;
    WORKS(cudaLaunchKernel((const void *)stray, one, one, NULL, 0, NULL));
    GIVES(cudaErrorIllegalAddress, cudaDeviceSynchronize());
    GIVES(cudaErrorIllegalAddress, cudaMalloc(&at, 4));
    GIVES(cudaErrorIllegalAddress, cudaLaunchKernel((const void *)add, one, one, NULL, 0, NULL));
    GIVES(cudaErrorIllegalAddress, cudaGetLastError());
    GIVES(cudaErrorIllegalAddress, cudaGetLastError());
    GIVES(cudaErrorIllegalAddress, cudaPeekAtLastError());
    return 0;
}
