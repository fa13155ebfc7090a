/* A convolution with bias and ReLU as a graph: the best engine's plan, saved as text and run.
 *
 *     cc convolution.c -lmcdnn -lm && kiln exec -- ./a.out
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "mcdnn.h"
#include "mcdnn_kiln.h"

#define N 1
#define C 4
#define K 8
#define SIZE 6

static void check(mcdnnStatus_t status, const char *what)
{
    if (status != MCDNN_STATUS_SUCCESS) {
        char text[512];
        mcdnnGetLastErrorString(text, sizeof(text));
        fprintf(stderr, "%s: %s: %s\n", what, mcdnnGetErrorString(status), text);
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

static mcdnnBackendDescriptor_t make(mcdnnBackendDescriptorType_t type)
{
    mcdnnBackendDescriptor_t descriptor;
    CHECK(mcdnnBackendCreateDescriptor(type, &descriptor));
    return descriptor;
}

static void set(mcdnnBackendDescriptor_t descriptor, mcdnnBackendAttributeName_t name,
                mcdnnBackendAttributeType_t type, int64_t count, const void *elements)
{
    CHECK(mcdnnBackendSetAttribute(descriptor, name, type, count, elements));
}

static void set_descriptor(mcdnnBackendDescriptor_t descriptor, mcdnnBackendAttributeName_t name,
                           mcdnnBackendDescriptor_t other)
{
    set(descriptor, name, MCDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
}

/* A tensor of 4 dimensions with the channels packed. */
static mcdnnBackendDescriptor_t tensor(int64_t uid, const int64_t dims[4], bool is_virtual)
{
    const int64_t strides[4] = {dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]};
    const int64_t alignment = 16;
    const mcdnnDataType_t type = MCDNN_DATA_FLOAT;
    mcdnnBackendDescriptor_t made = make(MCDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(made, MCDNN_ATTR_TENSOR_UNIQUE_ID, MCDNN_TYPE_INT64, 1, &uid);
    set(made, MCDNN_ATTR_TENSOR_DATA_TYPE, MCDNN_TYPE_DATA_TYPE, 1, &type);
    set(made, MCDNN_ATTR_TENSOR_BYTE_ALIGNMENT, MCDNN_TYPE_INT64, 1, &alignment);
    set(made, MCDNN_ATTR_TENSOR_DIMENSIONS, MCDNN_TYPE_INT64, 4, dims);
    set(made, MCDNN_ATTR_TENSOR_STRIDES, MCDNN_TYPE_INT64, 4, strides);
    set(made, MCDNN_ATTR_TENSOR_IS_VIRTUAL, MCDNN_TYPE_BOOLEAN, 1, &is_virtual);
    CHECK(mcdnnBackendFinalize(made));
    return made;
}

static mcdnnBackendDescriptor_t pointwise(mcdnnPointwiseMode_t mode, mcdnnBackendDescriptor_t x,
                                          mcdnnBackendDescriptor_t b, mcdnnBackendDescriptor_t y)
{
    const mcdnnDataType_t precision = MCDNN_DATA_FLOAT;
    mcdnnBackendDescriptor_t own = make(MCDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(own, MCDNN_ATTR_POINTWISE_MODE, MCDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(own, MCDNN_ATTR_POINTWISE_MATH_PREC, MCDNN_TYPE_DATA_TYPE, 1, &precision);
    CHECK(mcdnnBackendFinalize(own));
    mcdnnBackendDescriptor_t operation = make(MCDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(operation, MCDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, own);
    set_descriptor(operation, MCDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b != NULL) {
        set_descriptor(operation, MCDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    }
    set_descriptor(operation, MCDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    CHECK(mcdnnBackendFinalize(operation));
    /* The operation keeps what it was given. */
    CHECK(mcdnnBackendDestroyDescriptor(own));
    return operation;
}

int main(void)
{
    mcdnnHandle_t handle;
    CHECK(mcdnnCreate(&handle));
    const int64_t image[4] = {N, C, SIZE, SIZE}, filter[4] = {K, C, 3, 3};
    const int64_t response[4] = {N, K, SIZE, SIZE}, channels[4] = {1, K, 1, 1};
    mcdnnBackendDescriptor_t x = tensor('x', image, false), w = tensor('w', filter, false);
    mcdnnBackendDescriptor_t b = tensor('b', channels, false), y = tensor('y', response, false);
    mcdnnBackendDescriptor_t convolved = tensor('c', response, true);
    mcdnnBackendDescriptor_t biased = tensor('d', response, true);

    const mcdnnDataType_t precision = MCDNN_DATA_FLOAT;
    const mcdnnConvolutionMode_t mode = MCDNN_CROSS_CORRELATION;
    const int64_t spatial = 2, ones[2] = {1, 1};
    mcdnnBackendDescriptor_t convolution = make(MCDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(convolution, MCDNN_ATTR_CONVOLUTION_COMP_TYPE, MCDNN_TYPE_DATA_TYPE, 1, &precision);
    set(convolution, MCDNN_ATTR_CONVOLUTION_CONV_MODE, MCDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(convolution, MCDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, MCDNN_TYPE_INT64, 1, &spatial);
    set(convolution, MCDNN_ATTR_CONVOLUTION_DILATIONS, MCDNN_TYPE_INT64, 2, ones);
    set(convolution, MCDNN_ATTR_CONVOLUTION_FILTER_STRIDES, MCDNN_TYPE_INT64, 2, ones);
    set(convolution, MCDNN_ATTR_CONVOLUTION_PRE_PADDINGS, MCDNN_TYPE_INT64, 2, ones);
    set(convolution, MCDNN_ATTR_CONVOLUTION_POST_PADDINGS, MCDNN_TYPE_INT64, 2, ones);
    CHECK(mcdnnBackendFinalize(convolution));
    mcdnnBackendDescriptor_t operations[3];
    operations[0] = make(MCDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    set_descriptor(operations[0], MCDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution);
    set_descriptor(operations[0], MCDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
    set_descriptor(operations[0], MCDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
    set_descriptor(operations[0], MCDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, convolved);
    CHECK(mcdnnBackendFinalize(operations[0]));
    operations[1] = pointwise(MCDNN_POINTWISE_ADD, convolved, b, biased);
    operations[2] = pointwise(MCDNN_POINTWISE_RELU_FWD, biased, NULL, y);

    mcdnnBackendDescriptor_t graph = make(MCDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(graph, MCDNN_ATTR_OPERATIONGRAPH_HANDLE, MCDNN_TYPE_HANDLE, 1, &handle);
    set(graph, MCDNN_ATTR_OPERATIONGRAPH_OPS, MCDNN_TYPE_BACKEND_DESCRIPTOR, 3, operations);
    CHECK(mcdnnBackendFinalize(graph));

    /* The configurations for the graph, the best first. */
    const mcdnnBackendHeurMode_t heuristic = MCDNN_HEUR_MODE_A;
    mcdnnBackendDescriptor_t heuristics = make(MCDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set(heuristics, MCDNN_ATTR_ENGINEHEUR_MODE, MCDNN_TYPE_HEUR_MODE, 1, &heuristic);
    set_descriptor(heuristics, MCDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    CHECK(mcdnnBackendFinalize(heuristics));
    int64_t found = 0;
    CHECK(mcdnnBackendGetAttribute(heuristics, MCDNN_ATTR_ENGINEHEUR_RESULTS,
                                   MCDNN_TYPE_BACKEND_DESCRIPTOR, 0, &found, NULL));
    mcdnnBackendDescriptor_t best = make(MCDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    CHECK(mcdnnBackendGetAttribute(heuristics, MCDNN_ATTR_ENGINEHEUR_RESULTS,
                                   MCDNN_TYPE_BACKEND_DESCRIPTOR, 1, NULL, &best));

    mcdnnBackendDescriptor_t plan = make(MCDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(plan, MCDNN_ATTR_EXECUTION_PLAN_HANDLE, MCDNN_TYPE_HANDLE, 1, &handle);
    set_descriptor(plan, MCDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, best);
    CHECK(mcdnnBackendFinalize(plan));

    /* The plan as text, and a plan of the text. */
    int64_t length = 0;
    CHECK(mcdnnBackendGetAttribute(plan, MCDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                   MCDNN_TYPE_CHAR, 0, &length, NULL));
    char *text = malloc((size_t)length);
    CHECK(mcdnnBackendGetAttribute(plan, MCDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                   MCDNN_TYPE_CHAR, length, NULL, text));
    mcdnnBackendDescriptor_t saved = make(MCDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(saved, MCDNN_ATTR_EXECUTION_PLAN_HANDLE, MCDNN_TYPE_HANDLE, 1, &handle);
    set(saved, MCDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, MCDNN_TYPE_CHAR, length, text);
    CHECK(mcdnnBackendFinalize(saved));
    int64_t workspace_bytes = 0;
    CHECK(mcdnnBackendGetAttribute(saved, MCDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                   MCDNN_TYPE_INT64, 1, NULL, &workspace_bytes));
    printf("%d configurations, a plan of %d characters, %d bytes of workspace\n", (int)found,
           (int)length, (int)workspace_bytes);

    static float x_host[N * SIZE * SIZE * C], w_host[K * 9 * C], b_host[K];
    static float y_host[N * SIZE * SIZE * K];
    for (int i = 0; i < N * SIZE * SIZE * C; i++) {
        x_host[i] = (float)(i % 7) - 3.0f;
    }
    for (int i = 0; i < K * 9 * C; i++) {
        w_host[i] = (float)(i % 5) - 2.0f;
    }
    for (int i = 0; i < K; i++) {
        b_host[i] = (float)i;
    }
    void *pointers[4], *workspace;
    CHECK(mcdnnKilnMalloc(handle, &pointers[0], sizeof(x_host)));
    CHECK(mcdnnKilnMalloc(handle, &pointers[1], sizeof(w_host)));
    CHECK(mcdnnKilnMalloc(handle, &pointers[2], sizeof(b_host)));
    CHECK(mcdnnKilnMalloc(handle, &pointers[3], sizeof(y_host)));
    CHECK(mcdnnKilnMalloc(handle, &workspace, (size_t)workspace_bytes));
    CHECK(mcdnnKilnMemcpyHtoD(handle, pointers[0], x_host, sizeof(x_host)));
    CHECK(mcdnnKilnMemcpyHtoD(handle, pointers[1], w_host, sizeof(w_host)));
    CHECK(mcdnnKilnMemcpyHtoD(handle, pointers[2], b_host, sizeof(b_host)));
    const int64_t uids[4] = {'x', 'w', 'b', 'y'};
    mcdnnBackendDescriptor_t pack = make(MCDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(pack, MCDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, MCDNN_TYPE_INT64, 4, uids);
    set(pack, MCDNN_ATTR_VARIANT_PACK_DATA_POINTERS, MCDNN_TYPE_VOID_PTR, 4, pointers);
    set(pack, MCDNN_ATTR_VARIANT_PACK_WORKSPACE, MCDNN_TYPE_VOID_PTR, 1, &workspace);
    CHECK(mcdnnBackendFinalize(pack));
    CHECK(mcdnnBackendExecute(handle, saved, pack));
    CHECK(mcdnnKilnMemcpyDtoH(handle, y_host, pointers[3], sizeof(y_host)));

    /* What the host computes: small integers, so that the results are the same. */
    int wrong = 0;
    for (int row = 0; row < SIZE; row++) {
        for (int column = 0; column < SIZE; column++) {
            for (int k = 0; k < K; k++) {
                float sum = b_host[k];
                for (int tap = 0; tap < 9; tap++) {
                    const int r = row + tap / 3 - 1, c = column + tap % 3 - 1;
                    for (int channel = 0; r >= 0 && r < SIZE && c >= 0 && c < SIZE && channel < C;
                         channel++) {
                        sum += x_host[(r * SIZE + c) * C + channel] *
                               w_host[(k * 9 + tap) * C + channel];
                    }
                }
                wrong += y_host[(row * SIZE + column) * K + k] != fmaxf(sum, 0.0f);
            }
        }
    }
    printf("%d of %d results differ from the host's\n", wrong, N * SIZE * SIZE * K);
    free(text);
    mcdnnBackendDescriptor_t all[] = {x,
                                      w,
                                      b,
                                      y,
                                      convolved,
                                      biased,
                                      convolution,
                                      operations[0],
                                      operations[1],
                                      operations[2],
                                      graph,
                                      heuristics,
                                      best,
                                      plan,
                                      saved,
                                      pack};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        CHECK(mcdnnBackendDestroyDescriptor(all[i]));
    }
    CHECK(mcdnnDestroy(handle));
    return wrong == 0 ? 0 : 1;
}
