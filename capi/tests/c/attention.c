/* Multi-head attention in doubles, forward and backward: what it is are arguments, tensors are
 * files.
 *
 * attention FOLDER BIASES HEADS Q K V BATCH QUERIES KEYS AXIS AXIS AXIS
 *
 * Heads project to Q / HEADS elements, and back to Q. Lengths and windows are files as well.
 */
#include <math.h>

#include "common.h"

static mcdnnSeqDataDescriptor_t describe(const mcdnnSeqDataAxis_t *axes, int batch, int steps,
                                         int size, const int *lengths)
{
    int dims[MCDNN_SEQDATA_DIM_COUNT];
    dims[MCDNN_SEQDATA_TIME_DIM] = steps;
    dims[MCDNN_SEQDATA_BATCH_DIM] = batch;
    dims[MCDNN_SEQDATA_BEAM_DIM] = 1;
    dims[MCDNN_SEQDATA_VECT_DIM] = size;
    mcdnnSeqDataDescriptor_t data;
    CHECK(mcdnnCreateSeqDataDescriptor(&data));
    CHECK(mcdnnSetSeqDataDescriptor(data, MCDNN_DATA_DOUBLE, MCDNN_SEQDATA_DIM_COUNT, dims, axes,
                                    (size_t)batch, lengths, NULL));
    return data;
}

int main(int count, char **arguments)
{
    if (count != 13) {
        return 2;
    }
    const char *folder = arguments[1];
    int number[11];
    for (int i = 0; i < 11; i++) {
        number[i] = atoi(arguments[2 + i]);
    }
    const int biases = number[0], heads = number[1], q_size = number[2], k_size = number[3];
    const int v_size = number[4], batch = number[5], queries = number[6], keys = number[7];
    const int part = q_size / heads;
    mcdnnSeqDataAxis_t axes[4];
    for (int i = 0; i < 3; i++) {
        axes[i] = (mcdnnSeqDataAxis_t)number[8 + i];
    }
    axes[3] = MCDNN_SEQDATA_VECT_DIM;

    mcdnnHandle_t handle;
    CHECK(mcdnnCreate(&handle));
    mcdnnAttnDescriptor_t attention;
    CHECK(mcdnnCreateAttnDescriptor(&attention));
    const unsigned mode = MCDNN_ATTN_QUERYMAP_ALL_TO_ONE |
                          (biases ? MCDNN_ATTN_ENABLE_PROJ_BIASES : MCDNN_ATTN_DISABLE_PROJ_BIASES);
    CHECK(mcdnnSetAttnDescriptor(attention, mode, heads, 1.0 / sqrt(part), MCDNN_DATA_DOUBLE,
                                 MCDNN_DATA_DOUBLE, MCDNN_DEFAULT_MATH, NULL, NULL, q_size, k_size,
                                 v_size, part, part, part, q_size, queries, keys, batch, 1));
    size_t weight_bytes, workspace_bytes, reserve_bytes;
    CHECK(mcdnnGetMultiHeadAttnBuffers(handle, attention, &weight_bytes, &workspace_bytes,
                                       &reserve_bytes));
    const size_t ints = sizeof(int), doubles = sizeof(double);
    int *q_lengths = file_bytes(folder, "q_lengths", batch * ints);
    int *k_lengths = file_bytes(folder, "k_lengths", batch * ints);
    int *low = file_bytes(folder, "low", queries * ints);
    int *high = file_bytes(folder, "high", queries * ints);
    mcdnnSeqDataDescriptor_t q_desc = describe(axes, batch, queries, q_size, q_lengths);
    mcdnnSeqDataDescriptor_t k_desc = describe(axes, batch, keys, k_size, k_lengths);
    mcdnnSeqDataDescriptor_t v_desc = describe(axes, batch, keys, v_size, k_lengths);
    mcdnnSeqDataDescriptor_t o_desc = describe(axes, batch, queries, q_size, q_lengths);
    const size_t q_bytes = (size_t)batch * queries * q_size * doubles;
    const size_t k_bytes = (size_t)batch * keys * k_size * doubles;
    const size_t v_bytes = (size_t)batch * keys * v_size * doubles;
    void *q = upload(handle, folder, "q", q_bytes), *k = upload(handle, folder, "k", k_bytes);
    void *v = upload(handle, folder, "v", v_bytes), *out = zeros(handle, q_bytes);
    void *weights = upload(handle, folder, "weights", weight_bytes);
    void *workspace = zeros(handle, workspace_bytes), *reserve = zeros(handle, reserve_bytes);
    int *dev_q = upload(handle, folder, "q_lengths", batch * ints);
    int *dev_k = upload(handle, folder, "k_lengths", batch * ints);
    CHECK(mcdnnMultiHeadAttnForward(handle, attention, -1, low, high, dev_q, dev_k, q_desc, q, NULL,
                                    k_desc, k, v_desc, v, o_desc, out, weight_bytes, weights,
                                    workspace_bytes, workspace, reserve_bytes, reserve));
    /* The passes of a reserve space may be of several handles. */
    mcdnnHandle_t other;
    CHECK(mcdnnCreate(&other));
    void *dout = upload(handle, folder, "dout", q_bytes), *dq = zeros(handle, q_bytes);
    void *dk = zeros(handle, k_bytes), *dv = zeros(handle, v_bytes);
    void *gradients = zeros(handle, weight_bytes);
    CHECK(mcdnnMultiHeadAttnBackwardData(
        other, attention, low, high, dev_q, dev_k, o_desc, dout, q_desc, dq, q, k_desc, dk, k,
        v_desc, dv, v, weight_bytes, weights, workspace_bytes, workspace, reserve_bytes, reserve));
    CHECK(mcdnnMultiHeadAttnBackwardWeights(
        handle, attention, MCDNN_WGRAD_MODE_ADD, q_desc, q, k_desc, k, v_desc, v, o_desc, dout,
        weight_bytes, weights, gradients, workspace_bytes, workspace, reserve_bytes, reserve));
    download(handle, folder, "out", out, q_bytes);
    download(handle, folder, "dq", dq, q_bytes);
    download(handle, folder, "dk", dk, k_bytes);
    download(handle, folder, "dv", dv, v_bytes);
    download(handle, folder, "dweights", gradients, weight_bytes);
    CHECK(mcdnnDestroy(other));
    CHECK(mcdnnDestroy(handle));
    CHECK(mcdnnDestroyAttnDescriptor(attention));
    CHECK(mcdnnDestroySeqDataDescriptor(q_desc));
    CHECK(mcdnnDestroySeqDataDescriptor(k_desc));
    CHECK(mcdnnDestroySeqDataDescriptor(v_desc));
    CHECK(mcdnnDestroySeqDataDescriptor(o_desc));
    return 0;
}
