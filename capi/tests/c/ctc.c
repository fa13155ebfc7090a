/* A CTC loss through both interfaces: what it is of are arguments, tensors are files.
 *
 * ctc FOLDER NORMALIZATION PROPAGATE STEPS BATCH CLASSES LABELS
 */
#include "common.h"

int main(int count, char **arguments)
{
    if (count != 8) {
        return 2;
    }
    const char *folder = arguments[1];
    int number[6];
    for (int i = 0; i < 6; i++) {
        number[i] = atoi(arguments[2 + i]);
    }
    const int dims[3] = {number[2], number[3], number[4]};
    const int strides[3] = {number[3] * number[4], number[4], 1};
    const size_t batch = number[3], labels = number[5];
    const size_t bytes = sizeof(float) * dims[0] * strides[0];

    mcdnnHandle_t handle;
    CHECK(mcdnnCreate(&handle));
    mcdnnTensorDescriptor_t probs_desc, gradients_desc;
    CHECK(mcdnnCreateTensorDescriptor(&probs_desc));
    CHECK(mcdnnCreateTensorDescriptor(&gradients_desc));
    CHECK(mcdnnSetTensorNdDescriptor(probs_desc, MCDNN_DATA_FLOAT, 3, dims, strides));
    CHECK(mcdnnSetTensorNdDescriptor(gradients_desc, MCDNN_DATA_FLOAT, 3, dims, strides));
    mcdnnCTCLossDescriptor_t loss;
    CHECK(mcdnnCreateCTCLossDescriptor(&loss));
    const mcdnnLossNormalizationMode_t normalization = (mcdnnLossNormalizationMode_t)number[0];
    const mcdnnNanPropagation_t propagation = (mcdnnNanPropagation_t)number[1];
    void *probs = upload(handle, folder, "x", bytes);

    /* Labels in host memory. */
    int *host_labels = file_bytes(folder, "labels", labels * sizeof(int));
    int *host_label_lengths = file_bytes(folder, "label_lengths", batch * sizeof(int));
    int *host_input_lengths = file_bytes(folder, "input_lengths", batch * sizeof(int));
    CHECK(mcdnnSetCTCLossDescriptorEx(loss, MCDNN_DATA_FLOAT, normalization, propagation));
    void *costs = zeros(handle, batch * sizeof(float));
    void *gradients = upload(handle, folder, "before", bytes);
    size_t size;
    CHECK(mcdnnGetCTCLossWorkspaceSize(handle, probs_desc, gradients_desc, host_labels,
                                       host_label_lengths, host_input_lengths,
                                       MCDNN_CTC_LOSS_ALGO_DETERMINISTIC, loss, &size));
    CHECK(mcdnnCTCLoss(handle, probs_desc, probs, host_labels, host_label_lengths,
                       host_input_lengths, costs, gradients_desc, gradients,
                       MCDNN_CTC_LOSS_ALGO_DETERMINISTIC, loss, zeros(handle, size), size));
    download(handle, folder, "host_costs", costs, batch * sizeof(float));
    download(handle, folder, "host_gradients", gradients, bytes);

    /* Costs alone. */
    costs = zeros(handle, batch * sizeof(float));
    CHECK(mcdnnCTCLoss(handle, probs_desc, probs, host_labels, host_label_lengths,
                       host_input_lengths, costs, NULL, NULL,
                       MCDNN_CTC_LOSS_ALGO_NON_DETERMINISTIC, loss, zeros(handle, size), size));
    download(handle, folder, "alone_costs", costs, batch * sizeof(float));

    /* Labels in device memory, with no byte behind them. */
    CHECK(mcdnnSetCTCLossDescriptor_v8(loss, MCDNN_DATA_FLOAT, normalization, propagation, 60));
    void *own_labels = upload(handle, folder, "labels", labels * sizeof(int));
    void *label_lengths = upload(handle, folder, "label_lengths", batch * sizeof(int));
    void *input_lengths = upload(handle, folder, "input_lengths", batch * sizeof(int));
    costs = zeros(handle, batch * sizeof(float));
    gradients = upload(handle, folder, "before", bytes);
    CHECK(mcdnnGetCTCLossWorkspaceSize_v8(handle, MCDNN_CTC_LOSS_ALGO_DETERMINISTIC, loss,
                                          probs_desc, gradients_desc, &size));
    CHECK(mcdnnCTCLoss_v8(handle, MCDNN_CTC_LOSS_ALGO_DETERMINISTIC, loss, probs_desc, probs,
                          own_labels, label_lengths, input_lengths, costs, gradients_desc,
                          gradients, size, zeros(handle, size)));
    download(handle, folder, "device_costs", costs, batch * sizeof(float));
    download(handle, folder, "device_gradients", gradients, bytes);
    CHECK(mcdnnDestroyCTCLossDescriptor(loss));
    return mcdnnDestroy(handle);
}
