/* What the rows of backend.txt speak of: descriptors of the backend, made in one expression. */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mcdnn.h"

#define B(name) MCDNN_BACKEND_##name##_DESCRIPTOR
#define F MCDNN_DATA_FLOAT

typedef mcdnnBackendDescriptor_t desc;

static mcdnnHandle_t h;
static int64_t uid, count;
static int64_t got[16];
static char elements[4096];

static inline void make(void)
{
    uid = 0;
    count = -7;
    for (int i = 0; i < 16; i++) {
        got[i] = -7;
    }
}

static inline void drop(void) {}

static inline desc mk(int type)
{
    desc made = NULL;
    mcdnnBackendCreateDescriptor((mcdnnBackendDescriptorType_t)type, &made);
    return made;
}

static inline mcdnnStatus_t fin(desc of) { return mcdnnBackendFinalize(of); }

static inline desc done(desc of)
{
    mcdnnBackendFinalize(of);
    return of;
}

/* Sets so many integers, and gives the descriptor. */
static inline desc ints(desc of, int name, int number, ...)
{
    int64_t values[16];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < number && i < 16; i++) {
        values[i] = va_arg(list, int);
    }
    va_end(list);
    mcdnnBackendSetAttribute(of, (mcdnnBackendAttributeName_t)name, MCDNN_TYPE_INT64, number,
                             values);
    return of;
}

static inline desc number(desc of, int name, int type, int value)
{
    mcdnnBackendSetAttribute(of, (mcdnnBackendAttributeName_t)name,
                             (mcdnnBackendAttributeType_t)type, 1, &value);
    return of;
}

static inline desc floating(desc of, int name, double value)
{
    mcdnnBackendSetAttribute(of, (mcdnnBackendAttributeName_t)name, MCDNN_TYPE_DOUBLE, 1, &value);
    return of;
}

static inline desc with(desc of, int name, desc other)
{
    mcdnnBackendSetAttribute(of, (mcdnnBackendAttributeName_t)name, MCDNN_TYPE_BACKEND_DESCRIPTOR,
                             1, &other);
    return of;
}

static inline desc handled(desc of, int name)
{
    mcdnnBackendSetAttribute(of, (mcdnnBackendAttributeName_t)name, MCDNN_TYPE_HANDLE, 1, &h);
    return of;
}

/* A tensor that is not finalized, with strides of its own. */
static inline desc strided(int type, int alignment, int rank, const int *dims, int strides_count,
                           const int *strides)
{
    desc made = mk(B(TENSOR));
    int64_t values[16];
    for (int i = 0; i < rank; i++) {
        values[i] = dims[i];
    }
    mcdnnBackendSetAttribute(made, MCDNN_ATTR_TENSOR_DIMENSIONS, MCDNN_TYPE_INT64, rank, values);
    for (int i = 0; i < strides_count; i++) {
        values[i] = strides[i];
    }
    mcdnnBackendSetAttribute(made, MCDNN_ATTR_TENSOR_STRIDES, MCDNN_TYPE_INT64, strides_count,
                             values);
    ints(made, MCDNN_ATTR_TENSOR_UNIQUE_ID, 1, (int)++uid);
    ints(made, MCDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, alignment);
    return number(made, MCDNN_ATTR_TENSOR_DATA_TYPE, MCDNN_TYPE_DATA_TYPE, type);
}

static inline desc packed(int type, int rank, const int *dims)
{
    int strides[16] = {0};
    for (int i = rank - 1, stride = 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= dims[i] > 0 ? dims[i] : 1;
    }
    return done(strided(type, 16, rank, dims, rank, strides));
}

static inline desc t1(int a) { return packed(F, 1, (int[]){a}); }
static inline desc t2(int a, int b) { return packed(F, 2, (int[]){a, b}); }
static inline desc t3(int a, int b, int c) { return packed(F, 3, (int[]){a, b, c}); }
static inline desc t4(int a, int b, int c, int d) { return packed(F, 4, (int[]){a, b, c, d}); }
static inline desc t5(int a, int b, int c, int d, int e)
{
    return packed(F, 5, (int[]){a, b, c, d, e});
}
static inline desc i4(int a, int b, int c, int d)
{
    return packed(MCDNN_DATA_INT8, 4, (int[]){a, b, c, d});
}

static inline desc pw_desc(int mode)
{
    desc own = number(mk(B(POINTWISE)), MCDNN_ATTR_POINTWISE_MODE, MCDNN_TYPE_POINTWISE_MODE, mode);
    return done(number(own, MCDNN_ATTR_POINTWISE_MATH_PREC, MCDNN_TYPE_DATA_TYPE, F));
}

/* A pointwise operation; operands that are NULL are not set. */
static inline desc pw(int mode, desc x, desc b, desc y)
{
    desc own = mk(B(OPERATION_POINTWISE));
    with(own, MCDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pw_desc(mode));
    const bool backward = mode >= 200 && mode < 300;
    if (x != NULL) {
        with(own, MCDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    }
    if (b != NULL) {
        with(own,
             backward ? MCDNN_ATTR_OPERATION_POINTWISE_DYDESC
                      : MCDNN_ATTR_OPERATION_POINTWISE_BDESC,
             b);
    }
    if (y != NULL) {
        with(own,
             backward ? MCDNN_ATTR_OPERATION_POINTWISE_DXDESC
                      : MCDNN_ATTR_OPERATION_POINTWISE_YDESC,
             y);
    }
    return own;
}

static inline desc matmul(desc a, desc b, desc c)
{
    desc own = number(mk(B(MATMUL)), MCDNN_ATTR_MATMUL_COMP_TYPE, MCDNN_TYPE_DATA_TYPE, F);
    desc operation = with(mk(B(OPERATION_MATMUL)), MCDNN_ATTR_OPERATION_MATMUL_DESC, done(own));
    with(operation, MCDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    with(operation, MCDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    return with(operation, MCDNN_ATTR_OPERATION_MATMUL_CDESC, c);
}

static inline desc reduction(int op, desc x, desc y)
{
    desc own = number(mk(B(REDUCTION)), MCDNN_ATTR_REDUCTION_OPERATOR,
                      MCDNN_TYPE_REDUCTION_OPERATOR_TYPE, op);
    number(own, MCDNN_ATTR_REDUCTION_COMP_TYPE, MCDNN_TYPE_DATA_TYPE, F);
    desc operation =
        with(mk(B(OPERATION_REDUCTION)), MCDNN_ATTR_OPERATION_REDUCTION_DESC, done(own));
    with(operation, MCDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    return y == NULL ? operation : with(operation, MCDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
}

/* A convolution descriptor of 2 dimensions that is not finalized. */
static inline desc conv_desc(int spatial, int counts, int pre, int post, int stride, int dilation)
{
    desc own =
        number(mk(B(CONVOLUTION)), MCDNN_ATTR_CONVOLUTION_COMP_TYPE, MCDNN_TYPE_DATA_TYPE, F);
    number(own, MCDNN_ATTR_CONVOLUTION_CONV_MODE, MCDNN_TYPE_CONVOLUTION_MODE,
           MCDNN_CROSS_CORRELATION);
    ints(own, MCDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, spatial);
    ints(own, MCDNN_ATTR_CONVOLUTION_PRE_PADDINGS, counts, pre, pre, pre);
    ints(own, MCDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, post, post);
    ints(own, MCDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, stride, stride);
    return ints(own, MCDNN_ATTR_CONVOLUTION_DILATIONS, 2, dilation, dilation);
}

static inline desc conv(desc x, desc w, desc y)
{
    desc operation = mk(B(OPERATION_CONVOLUTION_FORWARD));
    with(operation, MCDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
         done(conv_desc(2, 2, 1, 1, 1, 1)));
    with(operation, MCDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
    with(operation, MCDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
    return with(operation, MCDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
}

static inline desc rng(int distribution)
{
    return number(mk(B(RNG)), MCDNN_ATTR_RNG_DISTRIBUTION, MCDNN_TYPE_RNG_DISTRIBUTION,
                  distribution);
}

static inline desc concat(int axis, desc x, desc y)
{
    desc own = ints(mk(B(OPERATION_CONCAT)), MCDNN_ATTR_OPERATION_CONCAT_AXIS, 1, axis);
    desc both[] = {x, x};
    mcdnnBackendSetAttribute(own, MCDNN_ATTR_OPERATION_CONCAT_INPUT_DESCS,
                             MCDNN_TYPE_BACKEND_DESCRIPTOR, 2, both);
    return with(own, MCDNN_ATTR_OPERATION_CONCAT_OUTPUT_DESC, y);
}

static inline desc graph(desc operation)
{
    desc own = handled(mk(B(OPERATIONGRAPH)), MCDNN_ATTR_OPERATIONGRAPH_HANDLE);
    return with(own, MCDNN_ATTR_OPERATIONGRAPH_OPS, done(operation));
}

static inline desc engine(desc of, int index)
{
    desc own = with(mk(B(ENGINE)), MCDNN_ATTR_ENGINE_OPERATION_GRAPH, done(of));
    return ints(own, MCDNN_ATTR_ENGINE_GLOBAL_INDEX, 1, index);
}

static inline desc config(desc of)
{
    return with(mk(B(ENGINECFG)), MCDNN_ATTR_ENGINECFG_ENGINE, done(of));
}

static inline desc plan(desc of)
{
    desc own = handled(mk(B(EXECUTION_PLAN)), MCDNN_ATTR_EXECUTION_PLAN_HANDLE);
    return with(own, MCDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, done(of));
}

static inline mcdnnStatus_t get(desc of, int name, int type, int asked)
{
    return mcdnnBackendGetAttribute(of, (mcdnnBackendAttributeName_t)name,
                                    (mcdnnBackendAttributeType_t)type, asked, &count, got);
}

/* The index of the engine that a heuristic finds best, and how many engines there are. */
static inline mcdnnStatus_t first(desc of, int mode)
{
    desc heuristics = number(mk(B(ENGINEHEUR)), MCDNN_ATTR_ENGINEHEUR_MODE, MCDNN_TYPE_HEUR_MODE,
                             mode);
    with(heuristics, MCDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, done(of));
    desc found = mk(B(ENGINECFG)), chosen = mk(B(ENGINE));
    mcdnnBackendGetAttribute(done(heuristics), MCDNN_ATTR_ENGINEHEUR_RESULTS,
                             MCDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &found);
    mcdnnBackendGetAttribute(found, MCDNN_ATTR_ENGINECFG_ENGINE, MCDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                             &count, &chosen);
    get(of, MCDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, MCDNN_TYPE_INT64, 1);
    got[1] = got[0];
    return get(chosen, MCDNN_ATTR_ENGINE_GLOBAL_INDEX, MCDNN_TYPE_INT64, 1);
}

static inline int same(const char *one, const char *other) { return strcmp(one, other) == 0; }
