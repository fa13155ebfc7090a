/* Multi-head attention of a beam search: several beams of each sequence attend to the same keys,
 * one time step at a time, and each sees the keys up to a window's end.
 *
 *     cc attention_beams.c -lmcdnn -lm && kiln exec -- ./a.out
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mcdnn.h"
#include "mcdnn_kiln.h"

#define STEPS 4
#define BATCH 2
#define BEAMS 3
#define KEYS 6
#define HEADS 2
#define SIZE 8
#define PART (SIZE / HEADS)

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

static mcdnnHandle_t handle;

static void *upload(const void *data, size_t bytes)
{
    void *address;
    CHECK(mcdnnKilnMalloc(handle, &address, bytes));
    CHECK(mcdnnKilnMemcpyHtoD(handle, address, data, bytes));
    return address;
}

/* Vectors of so many steps and beams for each sequence, which is as long as its lengths say. */
static mcdnnSeqDataDescriptor_t vectors(int steps, int beams, const int *lengths)
{
    const mcdnnSeqDataAxis_t order[] = {MCDNN_SEQDATA_TIME_DIM, MCDNN_SEQDATA_BATCH_DIM,
                                        MCDNN_SEQDATA_BEAM_DIM, MCDNN_SEQDATA_VECT_DIM};
    int dims[MCDNN_SEQDATA_DIM_COUNT];
    mcdnnSeqDataDescriptor_t made;
    dims[MCDNN_SEQDATA_TIME_DIM] = steps;
    dims[MCDNN_SEQDATA_BATCH_DIM] = BATCH;
    dims[MCDNN_SEQDATA_BEAM_DIM] = beams;
    dims[MCDNN_SEQDATA_VECT_DIM] = SIZE;
    CHECK(mcdnnCreateSeqDataDescriptor(&made));
    CHECK(mcdnnSetSeqDataDescriptor(made, MCDNN_DATA_FLOAT, MCDNN_SEQDATA_DIM_COUNT, dims, order,
                                    (size_t)(BATCH * beams), lengths, NULL));
    return made;
}

/* Projections that hand each head its part of the vectors: [heads, part, size] with strides. */
static void select_parts(mcdnnAttnDescriptor_t attention, mcdnnMultiHeadAttnWeightKind_t kind,
                         float *weights, size_t bytes)
{
    mcdnnTensorDescriptor_t matrix;
    mcdnnDataType_t type;
    int count, dims[3], strides[3];
    void *first;
    CHECK(mcdnnCreateTensorDescriptor(&matrix));
    CHECK(mcdnnGetMultiHeadAttnWeights(handle, attention, kind, bytes, weights, matrix, &first));
    CHECK(mcdnnGetTensorNdDescriptor(matrix, 3, &type, &count, dims, strides));
    for (int head = 0; head < dims[0]; head++) {
        for (int row = 0; row < dims[1]; row++) {
            const int column = head * PART + row;
            ((float *)first)[head * strides[0] + row * strides[1] + column * strides[2]] = 1;
        }
    }
    CHECK(mcdnnDestroyTensorDescriptor(matrix));
}

/* What a head gives for a query that sees so many keys, `stride` apart. */
static void expect(const float *query, const float *keys, const float *values, int seen, int stride,
                   double *out)
{
    double weight[KEYS], sum = 0;
    for (int key = 0; key < seen; key++) {
        double score = 0;
        for (int i = 0; i < PART; i++) {
            score += query[i] * keys[key * stride + i];
        }
        weight[key] = exp(score / sqrt(PART));
        sum += weight[key];
    }
    for (int i = 0; i < PART; i++) {
        out[i] = 0;
        for (int key = 0; key < seen; key++) {
            out[i] += weight[key] / sum * values[key * stride + i];
        }
    }
}

int main(void)
{
    static float q[STEPS][BATCH][BEAMS][SIZE], out[STEPS][BATCH][BEAMS][SIZE];
    static float k[KEYS][BATCH][SIZE], v[KEYS][BATCH][SIZE];
    static const int q_lengths[BATCH * BEAMS] = {STEPS, STEPS, STEPS, STEPS, STEPS, STEPS};
    static const int k_lengths[BATCH] = {KEYS, 4};
    /* A step sees the keys from its window's first one up to the one before its end. */
    static const int low[STEPS] = {0, 0, 0, 0}, high[STEPS] = {3, 4, 5, KEYS};
    for (size_t i = 0; i < sizeof(q) / sizeof(float); i++) {
        (&q[0][0][0][0])[i] = (float)((int)(i * 7 % 13) - 6) / 4;
    }
    for (size_t i = 0; i < sizeof(k) / sizeof(float); i++) {
        (&k[0][0][0])[i] = (float)((int)(i * 5 % 11) - 5) / 4;
        (&v[0][0][0])[i] = (float)((int)(i * 3 % 17) - 8) / 8;
    }

    CHECK(mcdnnCreate(&handle));
    mcdnnAttnDescriptor_t attention;
    CHECK(mcdnnCreateAttnDescriptor(&attention));
    CHECK(mcdnnSetAttnDescriptor(
        attention, MCDNN_ATTN_QUERYMAP_ALL_TO_ONE | MCDNN_ATTN_DISABLE_PROJ_BIASES, HEADS,
        1 / sqrt(PART), MCDNN_DATA_FLOAT, MCDNN_DATA_FLOAT, MCDNN_DEFAULT_MATH, NULL, NULL, SIZE,
        SIZE, SIZE, PART, PART, PART, 0, STEPS, KEYS, BATCH, BEAMS));
    size_t weight_bytes, workspace_bytes;
    CHECK(mcdnnGetMultiHeadAttnBuffers(handle, attention, &weight_bytes, &workspace_bytes, NULL));
    printf("%zu bytes of weights, %zu of workspace\n", weight_bytes, workspace_bytes);
    float *weights = calloc(1, weight_bytes);
    void *space = calloc(1, workspace_bytes + 1);
    select_parts(attention, MCDNN_MH_ATTN_Q_WEIGHTS, weights, weight_bytes);
    select_parts(attention, MCDNN_MH_ATTN_K_WEIGHTS, weights, weight_bytes);
    select_parts(attention, MCDNN_MH_ATTN_V_WEIGHTS, weights, weight_bytes);

    mcdnnSeqDataDescriptor_t q_desc = vectors(STEPS, BEAMS, q_lengths);
    mcdnnSeqDataDescriptor_t k_desc = vectors(KEYS, 1, k_lengths);
    mcdnnSeqDataDescriptor_t o_desc = vectors(STEPS, BEAMS, q_lengths);
    void *dev_q = upload(q, sizeof(q)), *dev_k = upload(k, sizeof(k)),
         *dev_v = upload(v, sizeof(v));
    void *dev_out = upload(out, sizeof(out)), *dev_weights = upload(weights, weight_bytes);
    void *dev_space = upload(space, workspace_bytes + 1);
    int *dev_q_lengths = upload(q_lengths, sizeof(q_lengths));
    int *dev_k_lengths = upload(k_lengths, sizeof(k_lengths));

    /* A search would choose the next step's queries by what this one gives. */
    for (int step = 0; step < STEPS; step++) {
        CHECK(mcdnnMultiHeadAttnForward(handle, attention, step, low, high, dev_q_lengths,
                                        dev_k_lengths, q_desc, dev_q, NULL, k_desc, dev_k, k_desc,
                                        dev_v, o_desc, dev_out, weight_bytes, dev_weights,
                                        workspace_bytes, dev_space, 0, NULL));
    }
    CHECK(mcdnnKilnMemcpyDtoH(handle, out, dev_out, sizeof(out)));

    int differ = 0;
    for (int step = 0; step < STEPS; step++) {
        for (int at = 0; at < BATCH * BEAMS * HEADS; at++) {
            const int sequence = at / (BEAMS * HEADS), beam = at / HEADS % BEAMS;
            const int first = at % HEADS * PART;
            const int length = k_lengths[sequence];
            const int seen = high[step] < length ? high[step] : length;
            double expected[PART];
            expect(&q[step][sequence][beam][first], &k[0][sequence][first], &v[0][sequence][first],
                   seen, BATCH * SIZE, expected);
            for (int i = 0; i < PART; i++) {
                differ += fabs(out[step][sequence][beam][first + i] - expected[i]) > 1e-5;
            }
        }
    }
    printf("%d of %d results differ\n", differ, STEPS * BATCH * BEAMS * SIZE);

    CHECK(mcdnnDestroySeqDataDescriptor(q_desc));
    CHECK(mcdnnDestroySeqDataDescriptor(k_desc));
    CHECK(mcdnnDestroySeqDataDescriptor(o_desc));
    CHECK(mcdnnDestroyAttnDescriptor(attention));
    CHECK(mcdnnDestroy(handle));
    free(weights);
    free(space);
    return differ != 0;
}
