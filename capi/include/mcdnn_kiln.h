/* What Kiln has beyond mcdnn.h. */
#ifndef MCDNN_KILN_H_
#define MCDNN_KILN_H_

#include "mcdnn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Failures and facts
 * ================== */

/* Why the last function of this thread that did not succeed did not, as much of it as
 * there is room for; an empty text after that. */
void mcdnnGetLastErrorString(char message[], size_t max_size);

/* Kiln's own version, such as "0.1.0". */
mcdnnStatus_t mcdnnKilnVersion(char version[], size_t room);

/* Finds or compiles every kernel of a manifest (docs of `kiln warm`), so that no call that the
 * manifest foresees compiles. */
mcdnnStatus_t mcdnnKilnWarm(mcdnnHandle_t handle, const char *manifest);

/* Adds a pack of prebuilt kernels to those that are searched on devices whose first handle is
 * made after this. */
mcdnnStatus_t mcdnnKilnPack(const char *path);

/* What a finalized execution plan runs: for each kernel a line with the engine, its knobs, the
 * kernel and where it came from. As much of it as there is room for; needed, unless it is
 * NULL, is what there is, NUL included. */
mcdnnStatus_t mcdnnKilnExplain(
    mcdnnBackendDescriptor_t plan,
    char text[],
    size_t room,
    size_t *needed);

/* The device of a handle: the target that kernels are built for, such as "sm_90a". */
mcdnnStatus_t mcdnnKilnDevice(mcdnnHandle_t handle, char name[], size_t room);

/* Recurrent networks: 8-bit integers, fast activations
 * ==================================================== */

/* Makes a network that mcdnnSetRNNDescriptor_v8 has described, of type float, one of 8-bit
 * integers for inference: x, y, hx and hy are of dataType, MCDNN_DATA_INT8 or
 * MCDNN_DATA_UINT8, cx and cy float. An integer is a number times scale plus shift, which is
 * an integer too, rounded to nearest even and saturated. mcdnnSetRNNDescriptor_v8 makes it one
 * of float again. */
mcdnnStatus_t mcdnnKilnSetRNNQuantization(
    mcdnnRNNDescriptor_t rnnDesc,
    mcdnnDataType_t dataType,
    double scale,
    double shift);

/* Makes the weight space of a network of 8-bit integers from that of the network as it was in
 * float: of each row of a matrix the largest weight is 127 or -127, and the row has a scale;
 * biases stay float. Both are in device memory, of mcdnnGetRNNWeightSpaceSize bytes with the
 * quantization and without. The weights go through memory of the host: the call waits for what
 * is queued on the handle's stream, and has written them when it returns. */
mcdnnStatus_t mcdnnKilnQuantizeRNNWeights(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    size_t floatWeightSpaceSize,
    const void *floatWeightSpace,
    size_t weightSpaceSize,
    void *weightSpace);

/* Makes sigmoid and tanh of a network that mcdnnSetRNNDescriptor_v8 has described one
 * instruction each, whose results are off by up to 2^-11, or with 0 what they were. A network
 * of double has none. mcdnnSetRNNDescriptor_v8 makes them what they were again. */
mcdnnStatus_t mcdnnKilnSetRNNFastActivations(mcdnnRNNDescriptor_t rnnDesc, int fast);

/* Memory, for programs without CUDA
 * ================================= */

/* Allocates device memory, which is not initialised. */
mcdnnStatus_t mcdnnKilnMalloc(mcdnnHandle_t handle, void **address, size_t bytes);

/* Frees memory of mcdnnKilnMalloc once what is queued has been done; NULL is none. */
mcdnnStatus_t mcdnnKilnFree(mcdnnHandle_t handle, void *address);

/* Copies to memory of mcdnnKilnMalloc, after what is queued on the handle's stream; waits. */
mcdnnStatus_t mcdnnKilnMemcpyHtoD(mcdnnHandle_t handle, void *to, const void *from, size_t bytes);

/* Copies from memory of mcdnnKilnMalloc, after what is queued on the handle's stream; waits. */
mcdnnStatus_t mcdnnKilnMemcpyDtoH(mcdnnHandle_t handle, void *to, const void *from, size_t bytes);

/* Waits for what is queued on the handle's stream. */
mcdnnStatus_t mcdnnKilnSynchronize(mcdnnHandle_t handle);

/* oneDNN's primitives, for kiln/dnnl_rnn.hpp
 * ========================================== */

#define MCDNN_KILN_DIFF_WEIGHTS_OVERWRITE (1U << 0)

typedef struct mcdnnKilnPrimitiveStruct *mcdnnKilnPrimitive_t;

/* What a primitive is for. */
typedef enum {
    MCDNN_KILN_PROP_FORWARD_INFERENCE = 0,
    MCDNN_KILN_PROP_FORWARD_TRAINING = 1,
    MCDNN_KILN_PROP_BACKWARD = 2
} mcdnnKilnPropKind_t;

/* The cell function of a primitive, of plain networks with their activation. */
typedef enum {
    MCDNN_KILN_CELL_RELU = 0,
    MCDNN_KILN_CELL_TANH = 1,
    MCDNN_KILN_CELL_LOGISTIC = 2,
    MCDNN_KILN_CELL_LSTM = 3,
    MCDNN_KILN_CELL_GRU = 4,
    MCDNN_KILN_CELL_LBR_GRU = 5,
    MCDNN_KILN_CELL_AUGRU = 6,
    MCDNN_KILN_CELL_LBR_AUGRU = 7
} mcdnnKilnRNNCell_t;

/* The order of steps. */
typedef enum {
    MCDNN_KILN_RNN_LEFT2RIGHT = 0,
    MCDNN_KILN_RNN_RIGHT2LEFT = 1,
    MCDNN_KILN_RNN_BIDIRECTIONAL_CONCAT = 2,
    MCDNN_KILN_RNN_BIDIRECTIONAL_SUM = 3
} mcdnnKilnRNNDirection_t;

/* Makes a primitive: a reorder of DNNL_ARG_FROM to DNNL_ARG_TO until it is set to be an RNN
 * primitive. */
mcdnnStatus_t mcdnnKilnCreatePrimitive(mcdnnKilnPrimitive_t *primitive);

/* Destroys a primitive; NULL is none. */
mcdnnStatus_t mcdnnKilnDestroyPrimitive(mcdnnKilnPrimitive_t primitive);

/* Makes of a primitive one of a recurrent network, with flags:
 * MCDNN_KILN_DIFF_WEIGHTS_OVERWRITE. */
mcdnnStatus_t mcdnnKilnSetRNNPrimitive(
    mcdnnKilnPrimitive_t primitive,
    mcdnnKilnPropKind_t propKind,
    mcdnnKilnRNNCell_t cell,
    mcdnnKilnRNNDirection_t direction,
    unsigned flags);

/* Describes the memory of an argument: its type, dimensions, and strides in elements. Without
 * strides, its format is the one that the primitive prefers. */
mcdnnStatus_t mcdnnKilnSetPrimitiveMemory(
    mcdnnKilnPrimitive_t primitive,
    int argument,
    mcdnnDataType_t dataType,
    int nbDims,
    const int64_t dims[],
    const int64_t strides[]);

/* Sets how 8-bit data is quantized: value times scale, plus shift. */
mcdnnStatus_t mcdnnKilnSetPrimitiveDataQuantization(
    mcdnnKilnPrimitive_t primitive,
    float scale,
    float shift);

/* Sets how 8-bit weights are quantized: value times a scale, one for all with the mask 0, or
 * one for each output channel. The argument is DNNL_ARG_WEIGHTS_LAYER, whose scales are those
 * of DNNL_ARG_WEIGHTS_ITER as well, or DNNL_ARG_WEIGHTS_PROJECTION. */
mcdnnStatus_t mcdnnKilnSetPrimitiveWeightsQuantization(
    mcdnnKilnPrimitive_t primitive,
    int argument,
    int mask,
    int numScales,
    const float scales[]);

/* Checks what a primitive was described to be, and chooses formats. Nothing is compiled. */
mcdnnStatus_t mcdnnKilnFinalizePrimitive(mcdnnKilnPrimitive_t primitive);

/* The memory that a finalized primitive wants of an argument, of the workspace of training
 * too: as many dimensions as there is room for. One that it does not have has 0 dimensions.
 * Places of what is not wanted are NULL. */
mcdnnStatus_t mcdnnKilnGetPrimitiveMemory(
    mcdnnKilnPrimitive_t primitive,
    int argument,
    int nbDimsRequested,
    mcdnnDataType_t *dataType,
    int *nbDims,
    int64_t dims[],
    int64_t strides[]);

/* Compiles the kernels of a finalized primitive for the device of a handle, or finds them in a
 * cache, and allocates its own memory. */
mcdnnStatus_t mcdnnKilnBuildPrimitive(mcdnnHandle_t handle, mcdnnKilnPrimitive_t primitive);

/* Queues a primitive on the handle's stream, with the addresses of so many arguments in device
 * memory; one that is not built for the device is built now. A primitive has memory of its
 * own: its executions are queued on one stream, or do not run at the same time. */
mcdnnStatus_t mcdnnKilnExecutePrimitive(
    mcdnnHandle_t handle,
    mcdnnKilnPrimitive_t primitive,
    int numArguments,
    const int arguments[],
    const void * addresses[]);

#ifdef __cplusplus
}
#endif

#endif
