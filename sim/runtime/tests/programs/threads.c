/* Threads: each with its stream and last error, the device and what is registered for all. */
#include <pthread.h>

#include "kernels.h"

#define THREADS 6
#define COUNT 1000

static unsigned *all;

static void *work(void *number)
{
    unsigned mine = (unsigned)(size_t)number;
    unsigned *part = all + mine * COUNT, back[COUNT];
    cudaStream_t stream;
    WORKS(cudaGetLastError());
    GIVES(cudaErrorInvalidDevice, cudaSetDevice(1 + (int)mine));
    WORKS(cudaStreamCreate(&stream));
    WORKS(cudaMemsetAsync(part, 0, sizeof back, stream));
    for (int i = 0; i < 20; i++) {
        WORKS(add_12(part, part, COUNT, 4, 256, 0, stream));
    }
    WORKS(cudaMemcpyAsync(back, part, sizeof back, cudaMemcpyDeviceToHost, stream));
    WORKS(cudaStreamSynchronize(stream));
    for (int i = 0; i < COUNT; i++) {
        HOLDS(back[i] == 2000);
    }
    WORKS(cudaStreamDestroy(stream));
    GIVES(cudaErrorInvalidDevice, cudaGetLastError());
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    WORKS(cudaMalloc((void **)&all, THREADS * COUNT * sizeof *all));
    for (size_t i = 0; i < THREADS; i++) {
        HOLDS(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        HOLDS(pthread_join(threads[i], NULL) == 0);
    }
    unsigned value;
    WORKS(cudaGetLastError());
    WORKS(cudaMemcpyFromSymbol(&value, &calls, 4, 0, cudaMemcpyDeviceToHost));
    HOLDS(value == 5 + THREADS * 20);
    return 0;
}
