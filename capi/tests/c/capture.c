/* A forward pass that is captured into a CUDA graph and replayed on other input, and what a call
 * leaves of the thread's context. */
#include "common.h"

#define HIDDEN 4
#define STEPS 3

typedef struct CUctx_st *CUcontext;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(CUcontext *context, int device);
int cuCtxSetCurrent(CUcontext context);
int cuCtxCreate_v2(CUcontext *context, unsigned flags, int device);
int cuCtxDestroy_v2(CUcontext context);
int cuCtxGetCurrent(CUcontext *context);
int cuStreamCreate(cudaStream_t *stream, unsigned flags);
int cuStreamSynchronize(cudaStream_t stream);
int cuStreamBeginCapture_v2(cudaStream_t stream, int mode);
int cuStreamEndCapture(cudaStream_t stream, CUgraph *graph);
int cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags);
int cuGraphLaunch(CUgraphExec graph, cudaStream_t stream);

#define DRIVER(call)                                                                               \
    do {                                                                                           \
        int code_ = (call);                                                                        \
        if (code_ != 0) {                                                                          \
            fprintf(stderr, "%s:%d: the driver answers %d\n", __FILE__, __LINE__, code_);          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

int main(void)
{
    CUcontext primary = NULL, current = NULL;
    DRIVER(cuInit(0));
    mcdnnHandle_t handle;
    CHECK(mcdnnCreate(&handle));
    DRIVER(cuCtxGetCurrent(&current));
    if (current != NULL) {
        fprintf(stderr, "a context is current that the program did not set\n");
        return 1;
    }
    DRIVER(cuDevicePrimaryCtxRetain(&primary, 0));
    CUcontext other = NULL;
    cudaStream_t stream, foreign, set;
    DRIVER(cuCtxCreate_v2(&other, 0, 0));
    DRIVER(cuStreamCreate(&foreign, 1));
    DRIVER(cuCtxSetCurrent(primary));
    DRIVER(cuStreamCreate(&stream, 1));
    CHECK(mcdnnSetStream(handle, stream));
    const mcdnnStatus_t of_another = mcdnnSetStream(handle, foreign);
    CHECK(mcdnnGetStream(handle, &set));
    if (of_another != MCDNN_STATUS_MAPPING_ERROR || set != stream) {
        fprintf(stderr, "a stream of another context: %s\n", mcdnnGetErrorString(of_another));
        return 1;
    }
    DRIVER(cuCtxDestroy_v2(other));
    DRIVER(cuCtxSetCurrent(primary));

    mcdnnRNNDescriptor_t rnn;
    CHECK(mcdnnCreateRNNDescriptor(&rnn));
    CHECK(mcdnnSetRNNDescriptor_v8(rnn, MCDNN_RNN_ALGO_STANDARD, MCDNN_GRU, MCDNN_RNN_DOUBLE_BIAS,
                                   MCDNN_UNIDIRECTIONAL, MCDNN_LINEAR_INPUT, MCDNN_DATA_FLOAT,
                                   MCDNN_DATA_FLOAT, MCDNN_DEFAULT_MATH, 1, HIDDEN, HIDDEN, 1, NULL,
                                   MCDNN_RNN_PADDED_IO_ENABLED));
    mcdnnRNNDataDescriptor_t x_desc, y_desc;
    CHECK(mcdnnCreateRNNDataDescriptor(&x_desc));
    CHECK(mcdnnCreateRNNDataDescriptor(&y_desc));
    const int length = STEPS;
    const mcdnnRNNDataLayout_t layout = MCDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
    CHECK(mcdnnSetRNNDataDescriptor(x_desc, MCDNN_DATA_FLOAT, layout, STEPS, 1, 1, &length, NULL));
    CHECK(mcdnnSetRNNDataDescriptor(y_desc, MCDNN_DATA_FLOAT, layout, STEPS, 1, HIDDEN, &length,
                                    NULL));
    size_t weight_bytes, workspace_bytes;
    CHECK(mcdnnGetRNNWeightSpaceSize(handle, rnn, &weight_bytes));
    CHECK(mcdnnGetRNNTempSpaceSizes(handle, rnn, MCDNN_FWD_MODE_INFERENCE, x_desc, &workspace_bytes,
                                    NULL));
    float first[STEPS] = {1.0f, -2.0f, 0.5f}, second[STEPS] = {-1.0f, 0.25f, 3.0f};
    float direct[STEPS * HIDDEN], replayed[STEPS * HIDDEN];
    float *weights_host = malloc(weight_bytes);
    for (size_t i = 0; i < weight_bytes / sizeof(float); i++) {
        weights_host[i] = (float)(i % 11) * 0.1f - 0.5f;
    }
    void *x = zeros(handle, sizeof(first)), *y = zeros(handle, sizeof(direct));
    void *weights = zeros(handle, weight_bytes), *workspace = zeros(handle, workspace_bytes);
    CHECK(mcdnnKilnMemcpyHtoD(handle, weights, weights_host, weight_bytes));
#define FORWARD()                                                                                  \
    CHECK(mcdnnRNNForward(handle, rnn, MCDNN_FWD_MODE_INFERENCE, NULL, x_desc, x, y_desc, y, NULL, \
                          NULL, NULL, NULL, NULL, NULL, weight_bytes, weights, workspace_bytes,    \
                          workspace, 0, NULL))
    CHECK(mcdnnKilnMemcpyHtoD(handle, x, second, sizeof(second)));
    FORWARD();
    CHECK(mcdnnKilnMemcpyDtoH(handle, direct, y, sizeof(direct)));

    CHECK(mcdnnKilnMemcpyHtoD(handle, x, first, sizeof(first)));
    DRIVER(cuStreamBeginCapture_v2(stream, 0));
    FORWARD();
    CUgraph graph;
    CUgraphExec executable;
    DRIVER(cuStreamEndCapture(stream, &graph));
    DRIVER(cuGraphInstantiateWithFlags(&executable, graph, 0));
    CHECK(mcdnnKilnMemcpyHtoD(handle, x, second, sizeof(second)));
    DRIVER(cuGraphLaunch(executable, stream));
    DRIVER(cuStreamSynchronize(stream));
    CHECK(mcdnnKilnMemcpyDtoH(handle, replayed, y, sizeof(replayed)));
    if (memcmp(direct, replayed, sizeof(direct)) != 0 || direct[0] == 0.0f) {
        fprintf(stderr, "the replayed pass gives other results\n");
        return 1;
    }
    DRIVER(cuCtxGetCurrent(&current));
    if (current != primary) {
        fprintf(stderr, "another context is current than before\n");
        return 1;
    }
    free(weights_host);
    CHECK(mcdnnDestroy(handle));
    printf("replayed\n");
    return 0;
}
