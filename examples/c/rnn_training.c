/* Trains an LSTM to say, at each step, the sign of the running sum of its input.
 *
 * Everything is on the device: the forward pass, both backward passes, and the steps of gradient
 * descent, whose additions are on the host here to keep the example short. Memory comes from
 * mcdnn_kiln.h, so that the program needs no CUDA:
 *
 *     cc rnn_training.c -lmcdnn -lm && kiln exec -- ./a.out
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "mcdnn.h"
#include "mcdnn_kiln.h"

#define STEPS 6
#define BATCH 16
#define HIDDEN 8
#define EPOCHS 60

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

static float uniform(void) { return (float)rand() / (float)RAND_MAX * 2.0f - 1.0f; }

int main(void)
{
    mcdnnHandle_t handle;
    CHECK(mcdnnCreate(&handle));

    /* One layer of LSTM: a number in, HIDDEN numbers out, of which the first is the answer. */
    mcdnnRNNDescriptor_t rnn;
    CHECK(mcdnnCreateRNNDescriptor(&rnn));
    CHECK(mcdnnSetRNNDescriptor_v8(rnn, MCDNN_RNN_ALGO_STANDARD, MCDNN_LSTM, MCDNN_RNN_DOUBLE_BIAS,
                                   MCDNN_UNIDIRECTIONAL, MCDNN_LINEAR_INPUT, MCDNN_DATA_FLOAT,
                                   MCDNN_DATA_FLOAT, MCDNN_DEFAULT_MATH, 1, HIDDEN, HIDDEN, 1, NULL,
                                   MCDNN_RNN_PADDED_IO_ENABLED));
    mcdnnRNNDataDescriptor_t x_desc, y_desc;
    CHECK(mcdnnCreateRNNDataDescriptor(&x_desc));
    CHECK(mcdnnCreateRNNDataDescriptor(&y_desc));
    int lengths[BATCH];
    for (int i = 0; i < BATCH; i++) {
        lengths[i] = STEPS;
    }
    const mcdnnRNNDataLayout_t layout = MCDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
    CHECK(mcdnnSetRNNDataDescriptor(x_desc, MCDNN_DATA_FLOAT, layout, STEPS, BATCH, 1, lengths,
                                    NULL));
    CHECK(mcdnnSetRNNDataDescriptor(y_desc, MCDNN_DATA_FLOAT, layout, STEPS, BATCH, HIDDEN, lengths,
                                    NULL));

    size_t weight_bytes, workspace_bytes, reserve_bytes;
    CHECK(mcdnnGetRNNWeightSpaceSize(handle, rnn, &weight_bytes));
    CHECK(mcdnnGetRNNTempSpaceSizes(handle, rnn, MCDNN_FWD_MODE_TRAINING, x_desc, &workspace_bytes,
                                    &reserve_bytes));
    printf("%zu bytes of weights, %zu of workspace, %zu of reserve space\n", weight_bytes,
           workspace_bytes, reserve_bytes);

    float x_host[STEPS * BATCH], wanted[STEPS * BATCH];
    float y_host[STEPS * BATCH * HIDDEN], dy_host[STEPS * BATCH * HIDDEN] = {0};
    float *weights_host = malloc(weight_bytes), *gradients_host = malloc(weight_bytes);
    const size_t weights_count = weight_bytes / sizeof(float);
    srand(1);
    for (size_t i = 0; i < weights_count; i++) {
        weights_host[i] = 0.5f * uniform();
    }
    void *x, *y, *dx, *dy, *weights, *gradients, *workspace, *reserve;
    CHECK(mcdnnKilnMalloc(handle, &x, sizeof(x_host)));
    CHECK(mcdnnKilnMalloc(handle, &y, sizeof(y_host)));
    CHECK(mcdnnKilnMalloc(handle, &dx, sizeof(x_host)));
    CHECK(mcdnnKilnMalloc(handle, &dy, sizeof(dy_host)));
    CHECK(mcdnnKilnMalloc(handle, &weights, weight_bytes));
    CHECK(mcdnnKilnMalloc(handle, &gradients, weight_bytes));
    CHECK(mcdnnKilnMalloc(handle, &workspace, workspace_bytes));
    CHECK(mcdnnKilnMalloc(handle, &reserve, reserve_bytes));

    float loss = 0.0f;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        for (int sequence = 0; sequence < BATCH; sequence++) {
            float sum = 0.0f;
            for (int step = 0; step < STEPS; step++) {
                const int at = step * BATCH + sequence;
                x_host[at] = uniform();
                sum += x_host[at];
                wanted[at] = sum > 0.0f ? 0.5f : -0.5f;
            }
        }
        CHECK(mcdnnKilnMemcpyHtoD(handle, x, x_host, sizeof(x_host)));
        CHECK(mcdnnKilnMemcpyHtoD(handle, weights, weights_host, weight_bytes));
        CHECK(mcdnnRNNForward(handle, rnn, MCDNN_FWD_MODE_TRAINING, NULL, x_desc, x, y_desc, y,
                              NULL, NULL, NULL, NULL, NULL, NULL, weight_bytes, weights,
                              workspace_bytes, workspace, reserve_bytes, reserve));
        CHECK(mcdnnKilnMemcpyDtoH(handle, y_host, y, sizeof(y_host)));
        loss = 0.0f;
        for (int at = 0; at < STEPS * BATCH; at++) {
            const float off = y_host[at * HIDDEN] - wanted[at];
            loss += off * off / (STEPS * BATCH);
            dy_host[at * HIDDEN] = 2.0f * off / (STEPS * BATCH);
        }
        CHECK(mcdnnKilnMemcpyHtoD(handle, dy, dy_host, sizeof(dy_host)));
        CHECK(mcdnnRNNBackwardData_v8(handle, rnn, NULL, y_desc, y, dy, x_desc, dx, NULL, NULL,
                                      NULL, NULL, NULL, NULL, NULL, NULL, weight_bytes, weights,
                                      workspace_bytes, workspace, reserve_bytes, reserve));
        /* Gradients are added to what is in memory. */
        for (size_t i = 0; i < weights_count; i++) {
            gradients_host[i] = 0.0f;
        }
        CHECK(mcdnnKilnMemcpyHtoD(handle, gradients, gradients_host, weight_bytes));
        CHECK(mcdnnRNNBackwardWeights_v8(handle, rnn, MCDNN_WGRAD_MODE_ADD, NULL, x_desc, x, NULL,
                                         NULL, y_desc, y, weight_bytes, gradients, workspace_bytes,
                                         workspace, reserve_bytes, reserve));
        CHECK(mcdnnKilnMemcpyDtoH(handle, gradients_host, gradients, weight_bytes));
        for (size_t i = 0; i < weights_count; i++) {
            weights_host[i] -= 2.0f * gradients_host[i];
        }
        if (epoch % 20 == 0) {
            printf("epoch %2d: loss %.4f\n", epoch, (double)loss);
        }
    }
    printf("epoch %2d: loss %.4f\n", EPOCHS, (double)loss);
    free(weights_host);
    free(gradients_host);
    CHECK(mcdnnDestroyRNNDescriptor(rnn));
    CHECK(mcdnnDestroyRNNDataDescriptor(x_desc));
    CHECK(mcdnnDestroyRNNDataDescriptor(y_desc));
    CHECK(mcdnnDestroy(handle));
    return loss < 0.12f ? 0 : 1;
}
