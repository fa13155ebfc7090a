/* Streams, events, functions of the host, and a capture that is launched twice. */
#include "kernels.h"

static void note(void *value) { ++*(int *)value; }

static void told(cudaStream_t stream, cudaError_t code, void *value)
{
    HOLDS(stream != NULL && code == cudaSuccess);
    *(int *)value += 10;
}

int main(void)
{
    cudaStream_t stream, other;
    cudaEvent_t start, end;
    float milliseconds = -1;
    int noted = 0, status = -1;
    unsigned *x, *y, back[4], from[4] = {1, 2, 3, 4};
    WORKS(cudaStreamCreate(&stream));
    WORKS(cudaStreamCreateWithFlags(&other, 1));
    WORKS(cudaEventCreate(&start));
    WORKS(cudaEventCreateWithFlags(&end, 0));
    WORKS(cudaMalloc((void **)&x, 16));
    WORKS(cudaMalloc((void **)&y, 16));
    WORKS(cudaEventRecord(start, stream));
    WORKS(cudaMemcpyAsync(x, from, 16, cudaMemcpyHostToDevice, stream));
    WORKS(add_12(y, x, 4, 1, 32, 0, stream));
    WORKS(cudaLaunchHostFunc(stream, note, &noted));
    WORKS(cudaStreamAddCallback(stream, told, &noted, 0));
    WORKS(cudaEventRecord(end, stream));
    WORKS(cudaStreamWaitEvent(other, end, 0));
    WORKS(cudaMemcpyAsync_ptsz(back, y, 16, cudaMemcpyDeviceToHost, NULL));
    WORKS(cudaStreamSynchronize(cudaStreamPerThread));
    WORKS(cudaStreamQuery(stream));
    WORKS(cudaEventSynchronize(end));
    WORKS(cudaEventQuery(end));
    WORKS(cudaEventElapsedTime(&milliseconds, start, end));
    HOLDS(milliseconds >= 0 && noted == 11 && back[0] == 101 && back[3] == 104);
    GIVES(cudaErrorInvalidResourceHandle, cudaStreamSynchronize((cudaStream_t)0x7777));

    cudaGraph_t graph;
    cudaGraphExec_t exec;
    WORKS(cudaStreamBeginCapture(stream, 0));
    WORKS(add_12(x, x, 4, 1, 32, 0, stream));
    WORKS(cudaStreamIsCapturing(stream, &status));
    HOLDS(status == 1);
    WORKS(cudaStreamEndCapture(stream, &graph));
    WORKS(cudaGraphInstantiate(&exec, graph, 0));
    WORKS(cudaMemcpy(back, x, 16, cudaMemcpyDeviceToHost));
    HOLDS(back[1] == 2);
    WORKS(cudaGraphLaunch(exec, stream));
    WORKS(cudaGraphLaunch(exec, other));
    WORKS(cudaMemcpy(back, x, 16, cudaMemcpyDeviceToHost));
    HOLDS(back[1] == 202);
    WORKS(cudaGraphExecDestroy(exec));
    WORKS(cudaGraphDestroy(graph));
    GIVES(cudaErrorStreamCaptureUnsupported, cudaStreamBeginCapture(NULL, 0));
    WORKS(cudaEventDestroy(start));
    WORKS(cudaEventDestroy(end));
    GIVES(cudaErrorInvalidResourceHandle, cudaEventDestroy(end));
    WORKS(cudaStreamDestroy(other));
    WORKS(cudaStreamDestroy(stream));
    return 0;
}
