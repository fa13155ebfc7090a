/* A program that was linked with libcudart.so.13: the functions of its version. */
#include "runtime_api.h"

int main(void)
{
    int version, status = -1;
    unsigned long long id = 0;
    size_t count = 7;
    void *at;
    cudaMemLocation device = {1, 0};
    WORKS(cudaRuntimeGetVersion(&version));
    HOLDS(version == 13000);
    WORKS(cudaMallocManaged(&at, 64, 1));
    WORKS(cudaMemAdvise(at, 64, 3, device));
    WORKS(cudaMemPrefetchAsync(at, 64, device, 0, NULL));
    GIVES(cudaErrorInvalidValue, cudaMemPrefetchAsync(at, 64, device, 1, NULL));
    WORKS(cudaStreamGetCaptureInfo(cudaStreamPerThread, &status, &id, NULL, NULL, NULL, &count));
    HOLDS(status == 0 && count == 0);
    WORKS(cudaFree(at));
    return 0;
}
