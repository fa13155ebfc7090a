/* Names and texts of all codes, to compare libraries by. */
#include <cuda_runtime_api.h>
#include <stdio.h>

int main(void)
{
    for (int code = 0; code < 11000; code++) {
        cudaError_t error = (cudaError_t)code;
        printf("%d %s: %s\n", code, cudaGetErrorName(error), cudaGetErrorString(error));
    }
    return 0;
}
