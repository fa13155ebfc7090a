/* A machine without a driver. */
#include "runtime_api.h"

int main(void)
{
    int count = 7, version = 7;
    GIVES(cudaErrorInsufficientDriver, cudaGetDeviceCount(&count));
    GIVES(cudaErrorInsufficientDriver, cudaDeviceSynchronize());
    GIVES(cudaErrorInsufficientDriver, cudaGetLastError());
    WORKS(cudaDriverGetVersion(&version));
    HOLDS(version == 0);
    HOLDS(strstr(cudaGetErrorString(35), "driver version is insufficient") != NULL);
    HOLDS(strcmp(cudaGetErrorString(700), "cudaErrorIllegalAddress") == 0);
    return 0;
}
