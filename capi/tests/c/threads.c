/* Six threads with a handle each, which build, run and check networks of their own. */
#include <math.h>
#include <pthread.h>

#include "common.h"

#define THREADS 6
#define NETWORKS 3

/* One layer of tanh without biases on one sequence: the host computes the same. */
static void network(mcdnnHandle_t handle, int hidden, int steps)
{
    mcdnnRNNDescriptor_t rnn;
    CHECK(mcdnnCreateRNNDescriptor(&rnn));
    CHECK(mcdnnSetRNNDescriptor_v8(rnn, MCDNN_RNN_ALGO_STANDARD, MCDNN_RNN_TANH, MCDNN_RNN_NO_BIAS,
                                   MCDNN_UNIDIRECTIONAL, MCDNN_LINEAR_INPUT, MCDNN_DATA_DOUBLE,
                                   MCDNN_DATA_DOUBLE, MCDNN_DEFAULT_MATH, 1, hidden, hidden, 1,
                                   NULL, MCDNN_RNN_PADDED_IO_ENABLED));
    mcdnnRNNDataDescriptor_t x_desc, y_desc;
    CHECK(mcdnnCreateRNNDataDescriptor(&x_desc));
    CHECK(mcdnnCreateRNNDataDescriptor(&y_desc));
    const mcdnnRNNDataLayout_t layout = MCDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
    CHECK(mcdnnSetRNNDataDescriptor(x_desc, MCDNN_DATA_DOUBLE, layout, steps, 1, 1, &steps, NULL));
    CHECK(mcdnnSetRNNDataDescriptor(y_desc, MCDNN_DATA_DOUBLE, layout, steps, 1, hidden, &steps,
                                    NULL));
    size_t weight_bytes, workspace_bytes;
    CHECK(mcdnnGetRNNWeightSpaceSize(handle, rnn, &weight_bytes));
    CHECK(mcdnnGetRNNTempSpaceSizes(handle, rnn, MCDNN_FWD_MODE_INFERENCE, x_desc, &workspace_bytes,
                                    NULL));
    double *w = malloc(weight_bytes), *r = w + hidden, y[8], before[8] = {0};
    for (size_t i = 0; i < weight_bytes / sizeof(double); i++) {
        w[i] = sin((double)i);
    }
    double x[8], *result = malloc(sizeof(double) * steps * hidden);
    for (int step = 0; step < steps; step++) {
        x[step] = cos((double)step);
    }
    const size_t x_bytes = steps * sizeof(double), y_bytes = x_bytes * hidden;
    void *dev_x, *dev_y, *dev_w, *workspace;
    CHECK(mcdnnKilnMalloc(handle, &dev_x, x_bytes));
    CHECK(mcdnnKilnMalloc(handle, &dev_y, y_bytes));
    CHECK(mcdnnKilnMalloc(handle, &dev_w, weight_bytes));
    CHECK(mcdnnKilnMalloc(handle, &workspace, workspace_bytes));
    CHECK(mcdnnKilnMemcpyHtoD(handle, dev_x, x, x_bytes));
    CHECK(mcdnnKilnMemcpyHtoD(handle, dev_w, w, weight_bytes));
    CHECK(mcdnnRNNForward(handle, rnn, MCDNN_FWD_MODE_INFERENCE, NULL, x_desc, dev_x, y_desc, dev_y,
                          NULL, NULL, NULL, NULL, NULL, NULL, weight_bytes, dev_w, workspace_bytes,
                          workspace, 0, NULL));
    CHECK(mcdnnKilnMemcpyDtoH(handle, result, dev_y, y_bytes));
    for (int step = 0; step < steps; step++) {
        for (int unit = 0; unit < hidden; unit++) {
            double sum = w[unit] * x[step];
            for (int other = 0; other < hidden; other++) {
                sum += r[unit * hidden + other] * before[other];
            }
            y[unit] = tanh(sum);
            if (fabs(y[unit] - result[step * hidden + unit]) > 1e-12) {
                fprintf(stderr, "step %d, unit %d: %g, not %g\n", step, unit,
                        result[step * hidden + unit], y[unit]);
                exit(1);
            }
        }
        memcpy(before, y, sizeof(before));
    }
    CHECK(mcdnnKilnFree(handle, dev_x));
    CHECK(mcdnnKilnFree(handle, dev_y));
    CHECK(mcdnnKilnFree(handle, dev_w));
    CHECK(mcdnnKilnFree(handle, workspace));
    free(w);
    free(result);
    CHECK(mcdnnDestroyRNNDescriptor(rnn));
    CHECK(mcdnnDestroyRNNDataDescriptor(x_desc));
    CHECK(mcdnnDestroyRNNDataDescriptor(y_desc));
}

static void *run(void *own)
{
    const int number = *(int *)own;
    mcdnnHandle_t handle;
    CHECK(mcdnnCreate(&handle));
    for (int i = 0; i < NETWORKS; i++) {
        network(handle, 2 + (number + i) % 4, 3 + i);
    }
    /* The text of a failure is this thread's. */
    char text[256], wanted[64];
    if (mcdnnRNNForward(NULL, NULL, MCDNN_FWD_MODE_INFERENCE, NULL, NULL, NULL, NULL, NULL, NULL,
                        NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, NULL, 0,
                        NULL) != MCDNN_STATUS_BAD_PARAM ||
        mcdnnBuildRNNDynamic(handle, NULL, number) != MCDNN_STATUS_BAD_PARAM) {
        exit(1);
    }
    mcdnnGetLastErrorString(text, sizeof(text));
    snprintf(wanted, sizeof(wanted), "mcdnnBuildRNNDynamic: rnnDesc is NULL");
    if (strcmp(text, wanted) != 0) {
        fprintf(stderr, "%s\n", text);
        exit(1);
    }
    CHECK(mcdnnDestroy(handle));
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, run, &numbers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("%d networks\n", THREADS * NETWORKS);
    return 0;
}
