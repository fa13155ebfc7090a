/* A recurrent network, forward and backward: what it is are arguments, tensors are files.
 *
 * rnn FOLDER TRAIN CELL LAYERS BIDIRECTIONAL INPUT HIDDEN PROJ BATCH STEPS LAYOUT DTYPE BIAS
 *     LENGTH...
 */
#include "common.h"

int main(int count, char **arguments)
{
    if (count < 14) {
        return 2;
    }
    const char *folder = arguments[1];
    int number[12];
    for (int i = 0; i < 12; i++) {
        number[i] = atoi(arguments[2 + i]);
    }
    const int train = number[0], layers = number[2], directions = number[3] + 1;
    const int input = number[4], hidden = number[5], proj = number[6], batch = number[7];
    const int steps = number[8];
    const mcdnnRNNMode_t cell = (mcdnnRNNMode_t)number[1];
    const mcdnnRNNDataLayout_t layout = (mcdnnRNNDataLayout_t)number[9];
    const mcdnnDataType_t dtype = (mcdnnDataType_t)number[10];
    const size_t bytes = dtype == MCDNN_DATA_DOUBLE ? 8 : dtype == MCDNN_DATA_FLOAT ? 4 : 2;
    int lengths[64];
    size_t rows = 0;
    for (int i = 0; i < batch; i++) {
        lengths[i] = atoi(arguments[14 + i]);
        rows += lengths[i];
    }
    if (layout != MCDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED) {
        rows = (size_t)batch * steps;
    }

    mcdnnHandle_t handle;
    CHECK(mcdnnCreate(&handle));
    mcdnnDropoutDescriptor_t dropout;
    CHECK(mcdnnCreateDropoutDescriptor(&dropout));
    size_t state_bytes;
    CHECK(mcdnnDropoutGetStatesSize(handle, &state_bytes));
    CHECK(mcdnnSetDropoutDescriptor(dropout, handle, 0.0f, zeros(handle, state_bytes), state_bytes,
                                    7));
    mcdnnRNNDescriptor_t rnn;
    CHECK(mcdnnCreateRNNDescriptor(&rnn));
    const mcdnnDataType_t precision = bytes == 8 ? MCDNN_DATA_DOUBLE : MCDNN_DATA_FLOAT;
    CHECK(mcdnnSetRNNDescriptor_v8(rnn, MCDNN_RNN_ALGO_STANDARD, cell,
                                   (mcdnnRNNBiasMode_t)number[11],
                                   directions == 2 ? MCDNN_BIDIRECTIONAL : MCDNN_UNIDIRECTIONAL,
                                   MCDNN_LINEAR_INPUT, dtype, precision, MCDNN_DEFAULT_MATH, input,
                                   hidden, proj, layers, dropout, MCDNN_RNN_PADDED_IO_ENABLED));
    mcdnnRNNDataDescriptor_t x_desc, y_desc;
    CHECK(mcdnnCreateRNNDataDescriptor(&x_desc));
    CHECK(mcdnnCreateRNNDataDescriptor(&y_desc));
    double fill = 0.0;
    const int width = proj * directions;
    CHECK(mcdnnSetRNNDataDescriptor(x_desc, dtype, layout, steps, batch, input, lengths, &fill));
    CHECK(mcdnnSetRNNDataDescriptor(y_desc, dtype, layout, steps, batch, width, lengths, &fill));
    mcdnnTensorDescriptor_t h_desc, c_desc;
    CHECK(mcdnnCreateTensorDescriptor(&h_desc));
    CHECK(mcdnnCreateTensorDescriptor(&c_desc));
    int h_dims[3] = {layers * directions, batch, proj};
    int c_dims[3] = {layers * directions, batch, hidden};
    int h_strides[3] = {batch * proj, proj, 1}, c_strides[3] = {batch * hidden, hidden, 1};
    CHECK(mcdnnSetTensorNdDescriptor(h_desc, dtype, 3, h_dims, h_strides));
    CHECK(mcdnnSetTensorNdDescriptor(c_desc, dtype, 3, c_dims, c_strides));

    size_t weight_bytes, workspace_bytes, reserve_bytes;
    CHECK(mcdnnGetRNNWeightSpaceSize(handle, rnn, &weight_bytes));
    const mcdnnForwardMode_t mode = train ? MCDNN_FWD_MODE_TRAINING : MCDNN_FWD_MODE_INFERENCE;
    CHECK(mcdnnGetRNNTempSpaceSizes(handle, rnn, mode, x_desc, &workspace_bytes, &reserve_bytes));
    if (!train && reserve_bytes != 0) {
        fprintf(stderr, "%zu bytes of reserve space in inference\n", reserve_bytes);
        return 1;
    }
    const size_t x_bytes = rows * input * bytes, y_bytes = rows * width * bytes;
    const size_t h_bytes = (size_t)h_dims[0] * batch * proj * bytes;
    const size_t c_bytes = (size_t)h_dims[0] * batch * hidden * bytes;
    void *x = upload(handle, folder, "x", x_bytes), *y = zeros(handle, y_bytes);
    void *hx = upload(handle, folder, "hx", h_bytes), *hy = zeros(handle, h_bytes);
    void *cx = upload(handle, folder, "cx", c_bytes), *cy = zeros(handle, c_bytes);
    void *weights = upload(handle, folder, "weights", weight_bytes);
    void *workspace = zeros(handle, workspace_bytes), *reserve = zeros(handle, reserve_bytes);
    int32_t *dev_lengths = NULL;
    if (train) {
        void *address;
        CHECK(mcdnnKilnMalloc(handle, &address, batch * sizeof(int)));
        CHECK(mcdnnKilnMemcpyHtoD(handle, address, lengths, batch * sizeof(int)));
        dev_lengths = address;
    }
    CHECK(mcdnnRNNForward(handle, rnn, mode, dev_lengths, x_desc, x, y_desc, y, h_desc, hx, hy,
                          c_desc, cx, cy, weight_bytes, weights, workspace_bytes, workspace,
                          reserve_bytes, reserve));
    download(handle, folder, "y", y, y_bytes);
    download(handle, folder, "hy", hy, h_bytes);
    download(handle, folder, "cy", cy, c_bytes);
    if (train) {
        void *dy = upload(handle, folder, "dy", y_bytes), *dx = zeros(handle, x_bytes);
        void *dhy = upload(handle, folder, "dhy", h_bytes), *dhx = zeros(handle, h_bytes);
        void *dcy = upload(handle, folder, "dcy", c_bytes), *dcx = zeros(handle, c_bytes);
        void *gradients = zeros(handle, weight_bytes);
        CHECK(mcdnnRNNBackwardData_v8(handle, rnn, dev_lengths, y_desc, y, dy, x_desc, dx, h_desc,
                                      hx, dhy, dhx, c_desc, cx, dcy, dcx, weight_bytes, weights,
                                      workspace_bytes, workspace, reserve_bytes, reserve));
        CHECK(mcdnnRNNBackwardWeights_v8(handle, rnn, MCDNN_WGRAD_MODE_ADD, dev_lengths, x_desc, x,
                                         h_desc, hx, y_desc, y, weight_bytes, gradients,
                                         workspace_bytes, workspace, reserve_bytes, reserve));
        download(handle, folder, "dx", dx, x_bytes);
        download(handle, folder, "dhx", dhx, h_bytes);
        download(handle, folder, "dcx", dcx, c_bytes);
        download(handle, folder, "dweights", gradients, weight_bytes);
    }
    CHECK(mcdnnDestroy(handle));
    CHECK(mcdnnDestroyRNNDescriptor(rnn));
    CHECK(mcdnnDestroyRNNDataDescriptor(x_desc));
    CHECK(mcdnnDestroyRNNDataDescriptor(y_desc));
    CHECK(mcdnnDestroyTensorDescriptor(h_desc));
    CHECK(mcdnnDestroyTensorDescriptor(c_desc));
    CHECK(mcdnnDestroyDropoutDescriptor(dropout));
    return 0;
}
