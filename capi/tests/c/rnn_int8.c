/* A recurrent network in float and of 8-bit integers, in inference: what it is are arguments,
 * tensors are files. x and hx are integers, cx and weights float; the network in float has the
 * numbers that the integers stand for. Writes weights_int8 and y, hy and cy of integers, and those
 * of float with _float behind their names.
 *
 * rnn_int8 FOLDER CELL LAYERS BIDIRECTIONAL INPUT HIDDEN BATCH STEPS LAYOUT DTYPE SCALE SHIFT FILL
 *     LENGTH...
 */
#include "common.h"

static const char *folder;
static mcdnnHandle_t handle;
static mcdnnRNNDescriptor_t rnn;
static int layers, directions, input, hidden, batch, steps, lengths[64];
static mcdnnRNNDataLayout_t layout;
static size_t rows;

static mcdnnRNNDataDescriptor_t vectors(mcdnnDataType_t dtype, int size, void *fill)
{
    mcdnnRNNDataDescriptor_t made;
    CHECK(mcdnnCreateRNNDataDescriptor(&made));
    CHECK(mcdnnSetRNNDataDescriptor(made, dtype, layout, steps, batch, size, lengths, fill));
    return made;
}

static mcdnnTensorDescriptor_t states(mcdnnDataType_t dtype)
{
    const int dims[] = {layers * directions, batch, hidden};
    const int strides[] = {batch * hidden, hidden, 1};
    mcdnnTensorDescriptor_t made;
    CHECK(mcdnnCreateTensorDescriptor(&made));
    CHECK(mcdnnSetTensorNdDescriptor(made, dtype, 3, dims, strides));
    return made;
}

/* The network that rnn describes, whose vectors have so many bytes for each element. */
static void forward(mcdnnDataType_t dtype, size_t bytes, void *fill, const void *x, const void *hx,
                    size_t weight_bytes, const void *weights, const char *const outputs[3])
{
    const size_t y_bytes = rows * directions * hidden * bytes;
    const size_t count = (size_t)layers * directions * batch * hidden;
    mcdnnRNNDataDescriptor_t x_desc = vectors(dtype, input, fill);
    mcdnnRNNDataDescriptor_t y_desc = vectors(dtype, directions * hidden, fill);
    mcdnnTensorDescriptor_t h_desc = states(dtype), c_desc = states(MCDNN_DATA_FLOAT);
    void *y = zeros(handle, y_bytes), *hy = zeros(handle, count * bytes);
    void *cx = upload(handle, folder, "cx", count * sizeof(float));
    void *cy = zeros(handle, count * sizeof(float));
    size_t workspace_bytes, reserve_bytes;
    CHECK(mcdnnGetRNNTempSpaceSizes(handle, rnn, MCDNN_FWD_MODE_INFERENCE, x_desc, &workspace_bytes,
                                    &reserve_bytes));
    CHECK(mcdnnRNNForward(handle, rnn, MCDNN_FWD_MODE_INFERENCE, NULL, x_desc, x, y_desc, y, h_desc,
                          hx, hy, c_desc, cx, cy, weight_bytes, weights, workspace_bytes,
                          zeros(handle, workspace_bytes), 0, NULL));
    download(handle, folder, outputs[0], y, y_bytes);
    download(handle, folder, outputs[1], hy, count * bytes);
    download(handle, folder, outputs[2], cy, count * sizeof(float));
    CHECK(mcdnnDestroyRNNDataDescriptor(x_desc));
    CHECK(mcdnnDestroyRNNDataDescriptor(y_desc));
    CHECK(mcdnnDestroyTensorDescriptor(h_desc));
    CHECK(mcdnnDestroyTensorDescriptor(c_desc));
}

/* Device memory with what the integers of a file stand for. */
static void *numbers(const char *name, size_t count, mcdnnDataType_t dtype, double scale,
                     double shift)
{
    unsigned char *integers = file_bytes(folder, name, count);
    float *values = malloc(count * sizeof(float) + 1);
    void *address;
    for (size_t i = 0; i < count; i++) {
        const int integer = dtype == MCDNN_DATA_UINT8 ? integers[i] : (signed char)integers[i];
        values[i] = (float)((integer - shift) / scale);
    }
    CHECK(mcdnnKilnMalloc(handle, &address, count * sizeof(float)));
    CHECK(mcdnnKilnMemcpyHtoD(handle, address, values, count * sizeof(float)));
    free(integers);
    free(values);
    return address;
}

int main(int count, char **arguments)
{
    if (count < 15) {
        return 2;
    }
    folder = arguments[1];
    const mcdnnRNNMode_t cell = (mcdnnRNNMode_t)atoi(arguments[2]);
    layers = atoi(arguments[3]);
    directions = atoi(arguments[4]) + 1;
    input = atoi(arguments[5]);
    hidden = atoi(arguments[6]);
    batch = atoi(arguments[7]);
    steps = atoi(arguments[8]);
    layout = (mcdnnRNNDataLayout_t)atoi(arguments[9]);
    const mcdnnDataType_t dtype = (mcdnnDataType_t)atoi(arguments[10]);
    const double scale = atof(arguments[11]), shift = atof(arguments[12]);
    signed char fill = (signed char)atoi(arguments[13]);
    float float_fill = 0.0f;
    rows = (size_t)batch * steps;
    size_t packed = 0;
    for (int i = 0; i < batch; i++) {
        lengths[i] = atoi(arguments[14 + i]);
        packed += lengths[i];
    }
    if (layout == MCDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED) {
        rows = packed;
    }
    CHECK(mcdnnCreate(&handle));
    CHECK(mcdnnCreateRNNDescriptor(&rnn));
    CHECK(mcdnnSetRNNDescriptor_v8(rnn, MCDNN_RNN_ALGO_STANDARD, cell, MCDNN_RNN_DOUBLE_BIAS,
                                   directions == 2 ? MCDNN_BIDIRECTIONAL : MCDNN_UNIDIRECTIONAL,
                                   MCDNN_LINEAR_INPUT, MCDNN_DATA_FLOAT, MCDNN_DATA_FLOAT,
                                   MCDNN_DEFAULT_MATH, input, hidden, hidden, layers, NULL,
                                   MCDNN_RNN_PADDED_IO_ENABLED));
    size_t weight_bytes, int8_bytes;
    CHECK(mcdnnGetRNNWeightSpaceSize(handle, rnn, &weight_bytes));
    void *weights = upload(handle, folder, "weights", weight_bytes);
    const size_t x_count = rows * input, h_count = (size_t)layers * directions * batch * hidden;
    const char *const in_float[] = {"y_float", "hy_float", "cy_float"};
    forward(MCDNN_DATA_FLOAT, sizeof(float), &float_fill,
            numbers("x", x_count, dtype, scale, shift),
            numbers("hx", h_count, dtype, scale, shift), weight_bytes, weights, in_float);

    CHECK(mcdnnKilnSetRNNQuantization(rnn, dtype, scale, shift));
    CHECK(mcdnnGetRNNWeightSpaceSize(handle, rnn, &int8_bytes));
    void *int8_weights = zeros(handle, int8_bytes);
    CHECK(mcdnnKilnQuantizeRNNWeights(handle, rnn, weight_bytes, weights, int8_bytes,
                                      int8_weights));
    download(handle, folder, "weights_int8", int8_weights, int8_bytes);
    const char *const in_integers[] = {"y", "hy", "cy"};
    forward(dtype, 1, &fill, upload(handle, folder, "x", x_count),
            upload(handle, folder, "hx", h_count), int8_bytes, int8_weights, in_integers);
    CHECK(mcdnnDestroyRNNDescriptor(rnn));
    CHECK(mcdnnDestroy(handle));
    return 0;
}
