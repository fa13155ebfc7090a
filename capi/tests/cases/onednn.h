/* Objects for rows about oneDNN's primitives: a handle, a primitive of which nothing is said, one
 * of a vanilla network of 2 steps, 1 sequence and 4 channels, and a finalized reorder. */
#ifndef MCDNN_CASES_ONEDNN_H_
#define MCDNN_CASES_ONEDNN_H_

#include "mcdnn_kiln.h"

#include <stdio.h>

#define F MCDNN_DATA_FLOAT

static mcdnnHandle_t h;
static mcdnnKilnPrimitive_t none, rnn, done, other;
static mcdnnDataType_t type;
static int n;
static int64_t dims[8], strides[8];
static const int64_t tnc[] = {2, 1, 4}, ldigo[] = {1, 1, 4, 1, 4}, packed[] = {4, 4, 1};
static const int64_t negative[] = {-1, 4, 1};
static const float scales[] = {64.0f, 64.0f};
static const int ends[] = {1, 17};

static inline mcdnnStatus_t memory(mcdnnKilnPrimitive_t of, int argument, int count,
                                   const int64_t extents[])
{
    return mcdnnKilnSetPrimitiveMemory(of, argument, F, count, extents, NULL);
}

/* A reorder of f32 to a type, with a quantization of data. */
static inline mcdnnStatus_t quantized(mcdnnKilnPrimitive_t of, mcdnnDataType_t to, float scale)
{
    mcdnnKilnSetPrimitiveMemory(of, 1, F, 3, tnc, packed);
    mcdnnKilnSetPrimitiveMemory(of, 17, to, 3, tnc, packed);
    mcdnnKilnSetPrimitiveDataQuantization(of, scale, 128.5f);
    return mcdnnKilnFinalizePrimitive(of);
}

static inline void make(void)
{
    n = -1;
    other = NULL;
    mcdnnKilnCreatePrimitive(&none);
    mcdnnKilnCreatePrimitive(&rnn);
    mcdnnKilnSetRNNPrimitive(rnn, MCDNN_KILN_PROP_FORWARD_INFERENCE, MCDNN_KILN_CELL_TANH,
                             MCDNN_KILN_RNN_LEFT2RIGHT, 0);
    memory(rnn, 1, 3, tnc);
    memory(rnn, 17, 3, tnc);
    memory(rnn, 33, 5, ldigo);
    memory(rnn, 34, 5, ldigo);
    mcdnnKilnCreatePrimitive(&done);
    mcdnnKilnSetPrimitiveMemory(done, 1, F, 3, tnc, packed);
    mcdnnKilnSetPrimitiveMemory(done, 17, F, 3, tnc, packed);
    mcdnnKilnFinalizePrimitive(done);
}

static inline void drop(void)
{
    mcdnnKilnDestroyPrimitive(none);
    mcdnnKilnDestroyPrimitive(rnn);
    mcdnnKilnDestroyPrimitive(done);
}

#endif
