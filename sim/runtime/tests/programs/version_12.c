/* A program that was linked with libcudart.so.12: the functions of its version. */
#define VERSION_12
#include "runtime_api.h"

int main(void)
{
    int version, status = -1;
    unsigned long long id = 0;
    void *at;
    WORKS(cudaRuntimeGetVersion(&version));
    HOLDS(version == 12090);
    WORKS(cudaMallocManaged(&at, 64, 1));
    WORKS(cudaMemAdvise(at, 64, 3, 0));
    WORKS(cudaMemPrefetchAsync(at, 64, -1, NULL));
    GIVES(cudaErrorInvalidDevice, cudaMemPrefetchAsync(at, 64, 3, NULL));
    WORKS(cudaStreamGetCaptureInfo(cudaStreamPerThread, &status, &id));
    HOLDS(status == 0);
    WORKS(cudaFree(at));
    return 0;
}
