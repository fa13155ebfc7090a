/* What the rows of facts.txt speak of. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mcdnn.h"
#include "mcdnn_kiln.h"

#define F MCDNN_DATA_FLOAT
#define NUL NULL

static mcdnnHandle_t h;
static mcdnnTensorDescriptor_t t, tn;
static mcdnnFilterDescriptor_t f, fn;
static mcdnnDropoutDescriptor_t d, dn;
static mcdnnRNNDescriptor_t r, rn;
static mcdnnRNNDataDescriptor_t x, xn;
static mcdnnSeqDataDescriptor_t s, sn;
static mcdnnAttnDescriptor_t a, an;
static mcdnnCTCLossDescriptor_t l, ln;

/* Arguments, and places for results, which hold 77 or -7 until they are written. */
static const int dims[] = {2, 3, 4, 5, 6, 7, 8, 9, 10}, strides[] = {12, 4, 1, 1, 1, 1, 1, 1, 1};
static const int zero[9];
static int out[9], out2[9], n, n2, n3;
static unsigned mask;
static size_t bytes, bytes2;
static double left, right;
static float probability;
static unsigned long long seed;
static void *pointer, *pointer2;
static char memory[256], fill[16];
static cudaStream_t stream;
static mcdnnDataType_t type;
static mcdnnTensorFormat_t format;
static mcdnnRNNClipMode_t clip;
static mcdnnNanPropagation_t nan_rule;
static mcdnnRNNDataLayout_t layout;
static mcdnnRNNBiasMode_t bias;
static mcdnnSeqDataAxis_t axes[4];
static mcdnnCallback_t callback;

static inline int same(const char *one, const char *other) { return strcmp(one, other) == 0; }

/* The number of a tensor's dimensions, which are then in out and out2. */
static inline int get(mcdnnTensorDescriptor_t tensor)
{
    int count = -1;
    mcdnnGetTensorNdDescriptor(tensor, 8, &type, &count, out, out2);
    return count;
}

static inline mcdnnTensorDescriptor_t four(mcdnnTensorDescriptor_t tensor)
{
    mcdnnSetTensor4dDescriptor(tensor, MCDNN_TENSOR_NCHW, F, 2, 3, 4, 5);
    return tensor;
}

static inline mcdnnTensorDescriptor_t step(mcdnnTensorDescriptor_t tensor, int batch, int size)
{
    const int own[] = {batch, size, 1}, own_strides[] = {size, 1, 1};
    mcdnnSetTensorNdDescriptor(tensor, F, 3, own, own_strides);
    return tensor;
}

static inline mcdnnStatus_t rnn(mcdnnRNNDescriptor_t of, int algo, int cell, int biases,
                                int direction, int input, int dtype, int precision, int math,
                                int input_size, int hidden, int proj, int layers, unsigned flags)
{
    return mcdnnSetRNNDescriptor_v8(of, (mcdnnRNNAlgo_t)algo, (mcdnnRNNMode_t)cell,
                                    (mcdnnRNNBiasMode_t)biases, (mcdnnDirectionMode_t)direction,
                                    (mcdnnRNNInputMode_t)input, (mcdnnDataType_t)dtype,
                                    (mcdnnDataType_t)precision, (mcdnnMathType_t)math, input_size,
                                    hidden, proj, layers, NULL, flags);
}

static inline mcdnnStatus_t v6(mcdnnRNNDescriptor_t of, int hidden, int layers)
{
    return mcdnnSetRNNDescriptor_v6(h, of, hidden, layers, d, MCDNN_LINEAR_INPUT,
                                    MCDNN_UNIDIRECTIONAL, MCDNN_LSTM, MCDNN_RNN_ALGO_STANDARD, F);
}

static inline mcdnnStatus_t data(mcdnnRNNDataDescriptor_t of, int dtype, int order, int steps,
                                 int batch, int size, int first, int second, int third)
{
    const int lengths[] = {first, second, third};
    return mcdnnSetRNNDataDescriptor(of, (mcdnnDataType_t)dtype, (mcdnnRNNDataLayout_t)order, steps,
                                     batch, size, lengths, NULL);
}

#define I8 MCDNN_DATA_INT8
#define U8 MCDNN_DATA_UINT8

/* Describes x and, as xn, y: 4 steps of 3 sequences for the network r. */
static inline void vectors(int dtype)
{
    data(x, dtype, 0, 4, 3, 4, 4, 4, 4);
    data(xn, dtype, 0, 4, 3, 8, 4, 4, 4);
}

static inline mcdnnTensorDescriptor_t states(mcdnnTensorDescriptor_t tensor, mcdnnDataType_t dtype)
{
    const int own[] = {2, 3, 8}, own_strides[] = {24, 8, 1};
    mcdnnSetTensorNdDescriptor(tensor, dtype, 3, own, own_strides);
    return tensor;
}

/* Passes of r over vectors of 8-bit integers, which are not launched. */
static inline mcdnnStatus_t forward(int mode, mcdnnDataType_t of_h, mcdnnDataType_t of_c,
                                    size_t size)
{
    return mcdnnRNNForward(h, r, (mcdnnForwardMode_t)mode, NULL, x, memory, xn, memory,
                           states(t, of_h), memory, NULL, states(tn, of_c), memory, NULL, size,
                           memory, 1 << 20, memory, sizeof(memory), memory);
}

static inline mcdnnStatus_t backward_data(void)
{
    return mcdnnRNNBackwardData_v8(h, r, NULL, xn, memory, memory, x, memory, NULL, NULL, NULL,
                                   NULL, NULL, NULL, NULL, NULL, 1 << 20, memory, 0, NULL,
                                   sizeof(memory), memory);
}

static inline mcdnnStatus_t backward_weights(void)
{
    return mcdnnRNNBackwardWeights_v8(h, r, MCDNN_WGRAD_MODE_ADD, NULL, x, memory, NULL, NULL, xn,
                                      memory, 1 << 20, memory, 0, NULL, sizeof(memory), memory);
}

/* Makes r a network of 8-bit integers, whose vectors are those of the passes. */
static inline int integers(void)
{
    vectors(U8);
    return mcdnnKilnSetRNNQuantization(r, U8, 63.0, 128.0) == 0;
}

static inline size_t weight_bytes(void)
{
    size_t own = 77;
    mcdnnGetRNNWeightSpaceSize(h, r, &own);
    return own;
}

/* 4 steps of 3 sequences with 2 candidates of 8 elements. */
static inline mcdnnStatus_t seq(mcdnnSeqDataDescriptor_t of, int dtype, int count, int first,
                                int second, int third, int fourth, size_t sequences, int length)
{
    const int extents[] = {4, 3, 2, 8};
    const mcdnnSeqDataAxis_t order[] = {(mcdnnSeqDataAxis_t)first, (mcdnnSeqDataAxis_t)second,
                                        (mcdnnSeqDataAxis_t)third, (mcdnnSeqDataAxis_t)fourth};
    const int lengths[] = {length, 1, 2, 3, 4, 4};
    return mcdnnSetSeqDataDescriptor(of, (mcdnnDataType_t)dtype, count, extents, order, sequences,
                                     lengths, NULL);
}

static inline mcdnnStatus_t attn(mcdnnAttnDescriptor_t of, unsigned mode, int heads, double scaler,
                                 int dtype, int precision, int q, int k, int v, int q_proj,
                                 int k_proj, int v_proj, int o_proj)
{
    return mcdnnSetAttnDescriptor(of, mode, heads, scaler, (mcdnnDataType_t)dtype,
                                  (mcdnnDataType_t)precision, MCDNN_DEFAULT_MATH, NULL, NULL, q, k,
                                  v, q_proj, k_proj, v_proj, o_proj, 4, 4, 3, 2);
}

/* The workspace's size for labels that are all the same, of three sequences of 2 steps and 4
 * classes. */
static inline mcdnnStatus_t ctc(int label, int label_length, int input_length)
{
    const int labels[] = {label, label, label, label, label, label};
    const int label_lengths[] = {label_length, 1, 0}, input_lengths[] = {input_length, 2, 0};
    return mcdnnGetCTCLossWorkspaceSize(h, t, t, labels, label_lengths, input_lengths,
                                        MCDNN_CTC_LOSS_ALGO_DETERMINISTIC, l, &bytes);
}

static inline void make(void)
{
    mcdnnCreateTensorDescriptor(&t);
    mcdnnCreateTensorDescriptor(&tn);
    mcdnnSetTensorNdDescriptor(t, F, 3, dims, strides);
    mcdnnCreateFilterDescriptor(&f);
    mcdnnCreateFilterDescriptor(&fn);
    mcdnnSetFilterNdDescriptor(f, F, MCDNN_TENSOR_NCHW, 3, dims);
    mcdnnCreateDropoutDescriptor(&d);
    mcdnnCreateDropoutDescriptor(&dn);
    mcdnnCreateRNNDescriptor(&r);
    mcdnnCreateRNNDescriptor(&rn);
    rnn(r, 0, MCDNN_LSTM, 2, 0, 0, F, F, 0, 4, 8, 8, 2, 1);
    mcdnnCreateRNNDataDescriptor(&x);
    mcdnnCreateRNNDataDescriptor(&xn);
    data(x, F, 0, 4, 3, 4, 4, 2, 3);
    mcdnnCreateSeqDataDescriptor(&s);
    mcdnnCreateSeqDataDescriptor(&sn);
    seq(s, F, 4, 0, 1, 2, 3, 6, 3);
    mcdnnCreateAttnDescriptor(&a);
    mcdnnCreateAttnDescriptor(&an);
    attn(a, 0, 2, 1.0, F, F, 8, 8, 8, 4, 4, 4, 8);
    mcdnnCreateCTCLossDescriptor(&l);
    mcdnnCreateCTCLossDescriptor(&ln);
    mcdnnSetCTCLossDescriptor_v8(l, F, MCDNN_LOSS_NORMALIZATION_SOFTMAX, MCDNN_PROPAGATE_NAN, 5);
    for (int i = 0; i < 9; i++) {
        out[i] = out2[i] = -7;
    }
    n = n2 = n3 = -7;
    mask = 77;
    bytes = bytes2 = 77;
    left = right = 77.0;
    memset(fill, 77, sizeof(fill));
    mcdnnSetStream(h, 0);
    mcdnnSetCallback(0, NULL, NULL);
}

static inline void drop(void)
{
    mcdnnDestroyTensorDescriptor(t);
    mcdnnDestroyTensorDescriptor(tn);
    mcdnnDestroyFilterDescriptor(f);
    mcdnnDestroyFilterDescriptor(fn);
    mcdnnDestroyDropoutDescriptor(d);
    mcdnnDestroyDropoutDescriptor(dn);
    mcdnnDestroyRNNDescriptor(r);
    mcdnnDestroyRNNDescriptor(rn);
    mcdnnDestroyRNNDataDescriptor(x);
    mcdnnDestroyRNNDataDescriptor(xn);
    mcdnnDestroySeqDataDescriptor(s);
    mcdnnDestroySeqDataDescriptor(sn);
    mcdnnDestroyAttnDescriptor(a);
    mcdnnDestroyAttnDescriptor(an);
    mcdnnDestroyCTCLossDescriptor(l);
    mcdnnDestroyCTCLossDescriptor(ln);
}
