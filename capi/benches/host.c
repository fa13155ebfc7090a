/* What calls cost on the host: nanoseconds each, on a device that launches nothing.
 *
 *     make bench-c
 *
 * The network is that of `cargo bench --bench host -- rnn/forward`.
 */
#define _POSIX_C_SOURCE 199309L
#include <math.h>
#include <stdbool.h>
#include <time.h>

#include "common.h"

static mcdnnHandle_t handle;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void *memory(size_t bytes)
{
    void *address;
    CHECK(mcdnnKilnMalloc(handle, &address, bytes + 256));
    return address;
}

/* The least time of a call in twenty rounds of a thousand. */
#define TIME(name, call)                                                                           \
    do {                                                                                           \
        double least = 1e18;                                                                       \
        CHECK(call);                                                                               \
        for (int round = 0; round < 20; round++) {                                                 \
            const double from = now();                                                             \
            for (int i = 0; i < 1000; i++) {                                                       \
                CHECK(call);                                                                       \
            }                                                                                      \
            least = fmin(least, (now() - from) / 1000);                                            \
        }                                                                                          \
        printf("%-28s %7.0f ns\n", name, least);                                                   \
    } while (0)

static mcdnnTensorDescriptor_t tensor(int first, int second, int third)
{
    mcdnnTensorDescriptor_t made;
    const int dims[] = {first, second, third}, strides[] = {second * third, third, 1};
    CHECK(mcdnnCreateTensorDescriptor(&made));
    CHECK(mcdnnSetTensorNdDescriptor(made, MCDNN_DATA_HALF, 3, dims, strides));
    return made;
}

static void recurrent(void)
{
    enum { STEPS = 16, BATCH = 8, SIZE = 64 };
    int lengths[BATCH];
    for (int i = 0; i < BATCH; i++) {
        lengths[i] = STEPS;
    }
    mcdnnRNNDescriptor_t rnn;
    mcdnnRNNDataDescriptor_t vectors;
    CHECK(mcdnnCreateRNNDescriptor(&rnn));
    CHECK(mcdnnSetRNNDescriptor_v8(rnn, MCDNN_RNN_ALGO_STANDARD, MCDNN_LSTM, MCDNN_RNN_DOUBLE_BIAS,
                                   MCDNN_UNIDIRECTIONAL, MCDNN_LINEAR_INPUT, MCDNN_DATA_HALF,
                                   MCDNN_DATA_FLOAT, MCDNN_TENSOR_OP_MATH, SIZE, SIZE, SIZE, 1,
                                   NULL, MCDNN_RNN_PADDED_IO_ENABLED));
    CHECK(mcdnnCreateRNNDataDescriptor(&vectors));
    CHECK(mcdnnSetRNNDataDescriptor(vectors, MCDNN_DATA_HALF,
                                    MCDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, STEPS, BATCH, SIZE,
                                    lengths, NULL));
    mcdnnTensorDescriptor_t state = tensor(1, BATCH, SIZE);
    size_t weights, work, reserve;
    TIME(
        "mcdnnGetRNNTempSpaceSizes",
        mcdnnGetRNNTempSpaceSizes(handle, rnn, MCDNN_FWD_MODE_INFERENCE, vectors, &work, &reserve));
    CHECK(mcdnnGetRNNWeightSpaceSize(handle, rnn, &weights));
    const size_t io = sizeof(short) * STEPS * BATCH * SIZE, h = sizeof(short) * BATCH * SIZE;
    void *x = memory(io), *y = memory(io), *hx = memory(h), *hy = memory(h), *cx = memory(h);
    void *cy = memory(h), *w = memory(weights), *space = memory(work);
    TIME("mcdnnRNNForward",
         mcdnnRNNForward(handle, rnn, MCDNN_FWD_MODE_INFERENCE, NULL, vectors, x, vectors, y, state,
                         hx, hy, state, cx, cy, weights, w, work, space, 0, NULL));
}

static mcdnnSeqDataDescriptor_t sequences(int batch, int steps, int size)
{
    const mcdnnSeqDataAxis_t axes[] = {MCDNN_SEQDATA_BATCH_DIM, MCDNN_SEQDATA_TIME_DIM,
                                       MCDNN_SEQDATA_BEAM_DIM, MCDNN_SEQDATA_VECT_DIM};
    int dims[MCDNN_SEQDATA_DIM_COUNT], lengths[64];
    mcdnnSeqDataDescriptor_t made;
    dims[MCDNN_SEQDATA_TIME_DIM] = steps;
    dims[MCDNN_SEQDATA_BATCH_DIM] = batch;
    dims[MCDNN_SEQDATA_BEAM_DIM] = 1;
    dims[MCDNN_SEQDATA_VECT_DIM] = size;
    for (int i = 0; i < batch; i++) {
        lengths[i] = steps;
    }
    CHECK(mcdnnCreateSeqDataDescriptor(&made));
    CHECK(mcdnnSetSeqDataDescriptor(made, MCDNN_DATA_HALF, MCDNN_SEQDATA_DIM_COUNT, dims, axes,
                                    (size_t)batch, lengths, NULL));
    return made;
}

static void attention(void)
{
    enum { BATCH = 2, STEPS = 64, HEADS = 4, SIZE = 256, PART = SIZE / HEADS };
    static int low[STEPS], high[STEPS];
    for (int i = 0; i < STEPS; i++) {
        high[i] = STEPS;
    }
    mcdnnAttnDescriptor_t layer;
    CHECK(mcdnnCreateAttnDescriptor(&layer));
    CHECK(mcdnnSetAttnDescriptor(
        layer, MCDNN_ATTN_QUERYMAP_ALL_TO_ONE | MCDNN_ATTN_DISABLE_PROJ_BIASES, HEADS,
        1 / sqrt(PART), MCDNN_DATA_HALF, MCDNN_DATA_FLOAT, MCDNN_TENSOR_OP_MATH, NULL, NULL, SIZE,
        SIZE, SIZE, PART, PART, PART, SIZE, STEPS, STEPS, BATCH, 1));
    size_t weights, work;
    TIME("mcdnnGetMultiHeadAttnBuffers",
         mcdnnGetMultiHeadAttnBuffers(handle, layer, &weights, &work, NULL));
    mcdnnSeqDataDescriptor_t vectors = sequences(BATCH, STEPS, SIZE);
    const size_t io = sizeof(short) * BATCH * STEPS * SIZE;
    void *q = memory(io), *k = memory(io), *v = memory(io), *out = memory(io), *w = memory(weights);
    void *space = memory(work);
    int *lengths = memory(sizeof(int) * BATCH);
    TIME("mcdnnMultiHeadAttnForward",
         mcdnnMultiHeadAttnForward(handle, layer, -1, low, high, lengths, lengths, vectors, q, NULL,
                                   vectors, k, vectors, v, vectors, out, weights, w, work, space, 0,
                                   NULL));
}

static mcdnnBackendDescriptor_t make(mcdnnBackendDescriptorType_t type)
{
    mcdnnBackendDescriptor_t made;
    CHECK(mcdnnBackendCreateDescriptor(type, &made));
    return made;
}

static void set(mcdnnBackendDescriptor_t own, mcdnnBackendAttributeName_t name,
                mcdnnBackendAttributeType_t type, int64_t count, const void *elements)
{
    CHECK(mcdnnBackendSetAttribute(own, name, type, count, elements));
}

static void refer(mcdnnBackendDescriptor_t own, mcdnnBackendAttributeName_t name,
                  mcdnnBackendDescriptor_t other)
{
    set(own, name, MCDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
}

static void graph(void)
{
    const int64_t dims[] = {1, 1024, 1024}, strides[] = {1024 * 1024, 1024, 1}, alignment = 16;
    const int64_t uids[] = {1, 2, 3}, engine = 0;
    const mcdnnDataType_t type = MCDNN_DATA_FLOAT;
    const mcdnnPointwiseMode_t add = MCDNN_POINTWISE_ADD;
    mcdnnBackendDescriptor_t tensors[3];
    void *pointers[3];
    for (int i = 0; i < 3; i++) {
        tensors[i] = make(MCDNN_BACKEND_TENSOR_DESCRIPTOR);
        set(tensors[i], MCDNN_ATTR_TENSOR_UNIQUE_ID, MCDNN_TYPE_INT64, 1, &uids[i]);
        set(tensors[i], MCDNN_ATTR_TENSOR_DATA_TYPE, MCDNN_TYPE_DATA_TYPE, 1, &type);
        set(tensors[i], MCDNN_ATTR_TENSOR_BYTE_ALIGNMENT, MCDNN_TYPE_INT64, 1, &alignment);
        set(tensors[i], MCDNN_ATTR_TENSOR_DIMENSIONS, MCDNN_TYPE_INT64, 3, dims);
        set(tensors[i], MCDNN_ATTR_TENSOR_STRIDES, MCDNN_TYPE_INT64, 3, strides);
        CHECK(mcdnnBackendFinalize(tensors[i]));
        pointers[i] = memory(sizeof(float) * 1024 * 1024);
    }
    mcdnnBackendDescriptor_t pointwise = make(MCDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(pointwise, MCDNN_ATTR_POINTWISE_MODE, MCDNN_TYPE_POINTWISE_MODE, 1, &add);
    set(pointwise, MCDNN_ATTR_POINTWISE_MATH_PREC, MCDNN_TYPE_DATA_TYPE, 1, &type);
    CHECK(mcdnnBackendFinalize(pointwise));
    mcdnnBackendDescriptor_t operation = make(MCDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    refer(operation, MCDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
    refer(operation, MCDNN_ATTR_OPERATION_POINTWISE_XDESC, tensors[0]);
    refer(operation, MCDNN_ATTR_OPERATION_POINTWISE_BDESC, tensors[1]);
    refer(operation, MCDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors[2]);
    CHECK(mcdnnBackendFinalize(operation));
    mcdnnBackendDescriptor_t all = make(MCDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(all, MCDNN_ATTR_OPERATIONGRAPH_HANDLE, MCDNN_TYPE_HANDLE, 1, &handle);
    refer(all, MCDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    CHECK(mcdnnBackendFinalize(all));
    mcdnnBackendDescriptor_t first = make(MCDNN_BACKEND_ENGINE_DESCRIPTOR);
    refer(first, MCDNN_ATTR_ENGINE_OPERATION_GRAPH, all);
    set(first, MCDNN_ATTR_ENGINE_GLOBAL_INDEX, MCDNN_TYPE_INT64, 1, &engine);
    CHECK(mcdnnBackendFinalize(first));
    mcdnnBackendDescriptor_t config = make(MCDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    refer(config, MCDNN_ATTR_ENGINECFG_ENGINE, first);
    CHECK(mcdnnBackendFinalize(config));
    mcdnnBackendDescriptor_t plan = make(MCDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(plan, MCDNN_ATTR_EXECUTION_PLAN_HANDLE, MCDNN_TYPE_HANDLE, 1, &handle);
    refer(plan, MCDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    CHECK(mcdnnBackendFinalize(plan));
    mcdnnBackendDescriptor_t pack = make(MCDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(pack, MCDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, MCDNN_TYPE_INT64, 3, uids);
    set(pack, MCDNN_ATTR_VARIANT_PACK_DATA_POINTERS, MCDNN_TYPE_VOID_PTR, 3, pointers);
    CHECK(mcdnnBackendFinalize(pack));
    TIME("mcdnnBackendExecute", mcdnnBackendExecute(handle, plan, pack));
}

int main(void)
{
    CHECK(mcdnnCreate(&handle));
    recurrent();
    attention();
    graph();
    return (int)mcdnnDestroy(handle);
}
