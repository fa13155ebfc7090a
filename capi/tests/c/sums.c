/* A network of the old interface whose inputs, states, gradients and biases are 1 and whose
 * matrices are 1 / (their number of elements): sums of what the three passes of training give. Its
 * results are the same in each sequence, so one stands for as many as are asked for. */
#include "common.h"

enum { STEPS = 20, LAYERS = 2, SIZE = 512 };

static mcdnnHandle_t handle;
static mcdnnDataType_t type;
static size_t width;

/* Device memory of so many elements of a value. */
static void fill(void *address, size_t count, double value)
{
    void *data = malloc(count * width);
    for (size_t i = 0; i < count; i++) {
        if (type == MCDNN_DATA_DOUBLE) {
            ((double *)data)[i] = value;
        } else {
            ((float *)data)[i] = (float)value;
        }
    }
    CHECK(mcdnnKilnMemcpyHtoD(handle, address, data, count * width));
    free(data);
}

static void *filled(size_t count, double value)
{
    void *address = NULL;
    CHECK(mcdnnKilnMalloc(handle, &address, count * width));
    fill(address, count, value);
    return address;
}

static void print_sum(const char *name, void *address, size_t count, double sequences)
{
    void *data = malloc(count * width);
    double sum = 0.0;
    CHECK(mcdnnKilnMemcpyDtoH(handle, data, address, count * width));
    for (size_t i = 0; i < count; i++) {
        sum += type == MCDNN_DATA_DOUBLE ? ((double *)data)[i] : ((float *)data)[i];
    }
    printf("%s %.9e\n", name, sum * sequences);
    free(data);
}

/* The descriptor of a tensor of three dimensions. */
static mcdnnTensorDescriptor_t tensor(int first, int second, int third)
{
    mcdnnTensorDescriptor_t descriptor;
    const int dims[] = {first, second, third}, strides[] = {second * third, third, 1};
    CHECK(mcdnnCreateTensorDescriptor(&descriptor));
    CHECK(mcdnnSetTensorNdDescriptor(descriptor, type, 3, dims, strides));
    return descriptor;
}

static mcdnnFilterDescriptor_t filter(size_t elements)
{
    mcdnnFilterDescriptor_t descriptor;
    const int dims[] = {(int)elements, 1, 1};
    CHECK(mcdnnCreateFilterDescriptor(&descriptor));
    CHECK(mcdnnSetFilterNdDescriptor(descriptor, type, MCDNN_TENSOR_NCHW, 3, dims));
    return descriptor;
}

static size_t elements_of(mcdnnFilterDescriptor_t descriptor)
{
    mcdnnDataType_t own;
    mcdnnTensorFormat_t format;
    int count, dims[3];
    CHECK(mcdnnGetFilterNdDescriptor(descriptor, 3, &own, &format, &count, dims));
    return (size_t)dims[0] * (size_t)dims[1] * (size_t)dims[2];
}

int main(int count, char **arguments)
{
    if (count != 4) {
        fprintf(stderr, "usage: sums MODE TYPE SEQUENCES\n");
        return 2;
    }
    const mcdnnRNNMode_t mode = (mcdnnRNNMode_t)atoi(arguments[1]);
    const double sequences = atof(arguments[3]);
    const int linear_layers = mode == MCDNN_LSTM ? 8 : mode == MCDNN_GRU ? 6 : 2;
    type = (mcdnnDataType_t)atoi(arguments[2]);
    width = type == MCDNN_DATA_DOUBLE ? sizeof(double) : sizeof(float);
    CHECK(mcdnnCreate(&handle));

    mcdnnTensorDescriptor_t steps[STEPS], states = tensor(LAYERS, 1, SIZE);
    for (int i = 0; i < STEPS; i++) {
        steps[i] = tensor(1, SIZE, 1);
    }
    const size_t io = (size_t)STEPS * SIZE, state = (size_t)LAYERS * SIZE;
    void *x = filled(io, 1), *y = filled(io, 0), *dx = filled(io, 0), *dy = filled(io, 1);
    void *hx = filled(state, 1), *cx = filled(state, 1), *hy = filled(state, 0);
    void *cy = filled(state, 0), *dhx = filled(state, 0), *dcx = filled(state, 0);
    void *dhy = filled(state, 1), *dcy = filled(state, 1);

    mcdnnDropoutDescriptor_t dropout;
    size_t state_bytes;
    CHECK(mcdnnCreateDropoutDescriptor(&dropout));
    CHECK(mcdnnDropoutGetStatesSize(handle, &state_bytes));
    void *random = filled(state_bytes / width + 1, 0);
    CHECK(mcdnnSetDropoutDescriptor(dropout, handle, 0, random, state_bytes, 1337));

    mcdnnRNNDescriptor_t rnn;
    CHECK(mcdnnCreateRNNDescriptor(&rnn));
    CHECK(mcdnnSetRNNDescriptor_v6(handle, rnn, SIZE, LAYERS, dropout, MCDNN_LINEAR_INPUT,
                                   MCDNN_UNIDIRECTIONAL, mode, MCDNN_RNN_ALGO_STANDARD, type));

    size_t weight_bytes, work_bytes, reserve_bytes;
    CHECK(mcdnnGetRNNParamsSize(handle, rnn, steps[0], &weight_bytes, type));
    CHECK(mcdnnGetRNNWorkspaceSize(handle, rnn, STEPS, steps, &work_bytes));
    CHECK(mcdnnGetRNNTrainingReserveSize(handle, rnn, STEPS, steps, &reserve_bytes));
    const size_t weights = weight_bytes / width;
    void *w = filled(weights, 0), *dw = filled(weights, 0);
    void *work = filled(work_bytes / width + 1, 0), *reserve = filled(reserve_bytes / width + 1, 0);
    mcdnnFilterDescriptor_t all = filter(weights), part = filter(1);
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int id = 0; id < linear_layers; id++) {
            void *address;
            CHECK(mcdnnGetRNNLinLayerMatrixParams(handle, rnn, layer, steps[0], all, w, id, part,
                                                  &address));
            fill(address, elements_of(part), 1.0 / (double)elements_of(part));
            CHECK(mcdnnGetRNNLinLayerBiasParams(handle, rnn, layer, steps[0], all, w, id, part,
                                                &address));
            fill(address, elements_of(part), 1);
        }
    }

    CHECK(mcdnnRNNForwardTraining(handle, rnn, STEPS, steps, x, states, hx, states, cx, all, w,
                                  steps, y, states, hy, states, cy, work, work_bytes, reserve,
                                  reserve_bytes));
    CHECK(mcdnnRNNBackwardData(handle, rnn, STEPS, steps, y, steps, dy, states, dhy, states, dcy,
                               all, w, states, hx, states, cx, steps, dx, states, dhx, states, dcx,
                               work, work_bytes, reserve, reserve_bytes));
    CHECK(mcdnnRNNBackwardWeights(handle, rnn, STEPS, steps, x, states, hx, steps, y, work,
                                  work_bytes, all, dw, reserve, reserve_bytes));
    print_sum("y", y, io, sequences);
    print_sum("hy", hy, state, sequences);
    print_sum("dx", dx, io, sequences);
    print_sum("dhx", dhx, state, sequences);
    print_sum("dw", dw, weights, sequences);
    if (mode == MCDNN_LSTM) {
        print_sum("cy", cy, state, sequences);
        print_sum("dcx", dcx, state, sequences);
    }
    return (int)mcdnnDestroy(handle);
}
