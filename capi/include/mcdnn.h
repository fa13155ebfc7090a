/* The interface of cuDNN 8.7 under the names of mcDNN, on Kiln.
 *
 * Made from the tables in capi/src: `make golden` writes it.
 */
#ifndef MCDNN_H_
#define MCDNN_H_

#include <stddef.h>
#include <stdint.h>

/* CUDA is not needed; with its header, the types are CUDA's. */
#ifdef __has_include
#if __has_include(<cuda_runtime_api.h>)
#include <cuda_runtime_api.h>
#define MCDNN_HAS_CUDA_RUNTIME_API_ 1
#endif
#endif
#ifndef MCDNN_HAS_CUDA_RUNTIME_API_
typedef struct CUstream_st *cudaStream_t;
typedef enum libraryPropertyType_t {
    MAJOR_VERSION,
    MINOR_VERSION,
    PATCH_LEVEL
} libraryPropertyType;
#endif

/* With MCDNN_WARN_DEPRECATED, the compiler warns of functions of the old interface. */
#ifndef MCDNN_DEPRECATED
#if defined(MCDNN_WARN_DEPRECATED) && defined(__GNUC__)
#define MCDNN_DEPRECATED __attribute__((deprecated))
#else
#define MCDNN_DEPRECATED
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Versions, statuses, messages
 * ============================ */

#define MCDNN_MAJOR 8
#define MCDNN_MINOR 7
#define MCDNN_PATCHLEVEL 0
#define MCDNN_VERSION (MCDNN_MAJOR * 1000 + MCDNN_MINOR * 100 + MCDNN_PATCHLEVEL)
#define MCDNN_SEV_ERROR_EN (1U << 1)
#define MCDNN_SEV_WARNING_EN (1U << 2)
#define MCDNN_SEV_INFO_EN (1U << 3)

typedef struct mcdnnHandleStruct *mcdnnHandle_t;

/* What a function answers. */
typedef enum {
    MCDNN_STATUS_SUCCESS = 0,
    MCDNN_STATUS_NOT_INITIALIZED = 1,
    MCDNN_STATUS_ALLOC_FAILED = 2,
    MCDNN_STATUS_BAD_PARAM = 3,
    MCDNN_STATUS_INTERNAL_ERROR = 4,
    MCDNN_STATUS_INVALID_VALUE = 5,
    MCDNN_STATUS_ARCH_MISMATCH = 6,
    MCDNN_STATUS_MAPPING_ERROR = 7,
    MCDNN_STATUS_EXECUTION_FAILED = 8,
    MCDNN_STATUS_NOT_SUPPORTED = 9,
    MCDNN_STATUS_LICENSE_ERROR = 10,
    MCDNN_STATUS_RUNTIME_PREREQUISITE_MISSING = 11,
    MCDNN_STATUS_RUNTIME_IN_PROGRESS = 12,
    MCDNN_STATUS_RUNTIME_FP_OVERFLOW = 13,
    MCDNN_STATUS_VERSION_MISMATCH = 14
} mcdnnStatus_t;

/* How grave a message is. */
typedef enum {
    MCDNN_SEV_FATAL = 0,
    MCDNN_SEV_ERROR = 1,
    MCDNN_SEV_WARNING = 2,
    MCDNN_SEV_INFO = 3
} mcdnnSeverity_t;

/* How mcdnnQueryRuntimeError asks. */
typedef enum {
    MCDNN_ERRQUERY_RAWCODE = 0,
    MCDNN_ERRQUERY_NONBLOCKING = 1,
    MCDNN_ERRQUERY_BLOCKING = 2
} mcdnnErrQueryMode_t;

typedef struct mcdnnRuntimeTagStruct mcdnnRuntimeTag_t;

typedef struct mcdnnDebugStruct {
    unsigned mcdnn_version;
    mcdnnStatus_t mcdnnStatus;
    unsigned time_sec;
    unsigned time_usec;
    unsigned time_delta;
    mcdnnHandle_t handle;
    cudaStream_t stream;
    unsigned long long pid;
    unsigned long long tid;
    int cudaDeviceId;
    int reserved[15];
} mcdnnDebug_t;

/* Gets a message as texts that end with NUL, one behind the other, the last one empty. */
typedef void (*mcdnnCallback_t)(mcdnnSeverity_t severity, void *userData, const mcdnnDebug_t *debug,
                                const char *message);

/* The version of the interface: 8700. */
size_t mcdnnGetVersion(void);

/* The version of CUDA that the library was built for, such as 13000. */
size_t mcdnnGetCudartVersion(void);

/* The newest architecture that kernels are built for, such as 1200 for sm_120. */
size_t mcdnnGetMaxDeviceVersion(void);

/* The name of a status. */
const char *mcdnnGetErrorString(mcdnnStatus_t status);

/* A part of the version. */
mcdnnStatus_t mcdnnGetProperty(libraryPropertyType property, int *value);

/* Whether all parts of the library are of one version; they are one library. */
mcdnnStatus_t mcdnnOpsInferVersionCheck(void);

/* As mcdnnOpsInferVersionCheck. */
mcdnnStatus_t mcdnnOpsTrainVersionCheck(void);

/* As mcdnnOpsInferVersionCheck. */
mcdnnStatus_t mcdnnAdvInferVersionCheck(void);

/* As mcdnnOpsInferVersionCheck. */
mcdnnStatus_t mcdnnAdvTrainVersionCheck(void);

/* As mcdnnOpsInferVersionCheck. */
mcdnnStatus_t mcdnnCnnInferVersionCheck(void);

/* As mcdnnOpsInferVersionCheck. */
mcdnnStatus_t mcdnnCnnTrainVersionCheck(void);

/* What kernels found to be wrong while they ran. Ours find nothing that is not told by the
 * device itself: the answer is always MCDNN_STATUS_SUCCESS. */
mcdnnStatus_t mcdnnQueryRuntimeError(
    mcdnnHandle_t handle,
    mcdnnStatus_t *rstatus,
    mcdnnErrQueryMode_t mode,
    mcdnnRuntimeTag_t * tag);

/* Sets the function that is told messages of the severities in a mask (`MCDNN_SEV_ERROR_EN`
 * and others); NULL: nobody is told. */
mcdnnStatus_t mcdnnSetCallback(unsigned mask, void *udata, mcdnnCallback_t fptr);

/* What mcdnnSetCallback has set. */
mcdnnStatus_t mcdnnGetCallback(unsigned *mask, void **udata, mcdnnCallback_t *fptr);

/* Makes a handle for the device that the environment variable KILN_DEVICE names, for the GPU
 * whose context is current on this thread, or for the first one. Its calls are queued on the
 * default stream until mcdnnSetStream gives it another. */
mcdnnStatus_t mcdnnCreate(mcdnnHandle_t *handle);

/* Destroys a handle; NULL is none. Descriptors outlive it. */
mcdnnStatus_t mcdnnDestroy(mcdnnHandle_t handle);

/* Sets the stream that the calls of a handle are queued on. One of another device, or of a
 * context that is not its device's primary one, is MAPPING_ERROR. */
mcdnnStatus_t mcdnnSetStream(mcdnnHandle_t handle, cudaStream_t streamId);

/* The stream that the calls of a handle are queued on. */
mcdnnStatus_t mcdnnGetStream(mcdnnHandle_t handle, cudaStream_t *streamId);

/* Tensors and filters
 * =================== */

#define MCDNN_DIM_MAX 8

typedef struct mcdnnTensorDescriptorStruct *mcdnnTensorDescriptor_t;
typedef struct mcdnnFilterDescriptorStruct *mcdnnFilterDescriptor_t;

/* The type of elements. */
typedef enum {
    MCDNN_DATA_FLOAT = 0,
    MCDNN_DATA_DOUBLE = 1,
    MCDNN_DATA_HALF = 2,
    MCDNN_DATA_INT8 = 3,
    MCDNN_DATA_INT32 = 4,
    MCDNN_DATA_INT8x4 = 5,
    MCDNN_DATA_UINT8 = 6,
    MCDNN_DATA_UINT8x4 = 7,
    MCDNN_DATA_INT8x32 = 8,
    MCDNN_DATA_BFLOAT16 = 9,
    MCDNN_DATA_INT64 = 10,
    MCDNN_DATA_BOOLEAN = 11,
    MCDNN_DATA_FP8_E4M3 = 12,
    MCDNN_DATA_FP8_E5M2 = 13,
    MCDNN_DATA_FAST_FLOAT_FOR_FP8 = 14
} mcdnnDataType_t;

/* Whether tensor cores may be used. */
typedef enum {
    MCDNN_DEFAULT_MATH = 0,
    MCDNN_TENSOR_OP_MATH = 1,
    MCDNN_TENSOR_OP_MATH_ALLOW_CONVERSION = 2,
    MCDNN_FMA_MATH = 3
} mcdnnMathType_t;

/* Whether a NaN stays one. */
typedef enum {
    MCDNN_NOT_PROPAGATE_NAN = 0,
    MCDNN_PROPAGATE_NAN = 1
} mcdnnNanPropagation_t;

/* Whether the results may differ from run to run. */
typedef enum {
    MCDNN_NON_DETERMINISTIC = 0,
    MCDNN_DETERMINISTIC = 1
} mcdnnDeterminism_t;

/* The order of a tensor's dimensions in memory. */
typedef enum {
    MCDNN_TENSOR_NCHW = 0,
    MCDNN_TENSOR_NHWC = 1,
    MCDNN_TENSOR_NCHW_VECT_C = 2
} mcdnnTensorFormat_t;

/* Makes a tensor descriptor. */
mcdnnStatus_t mcdnnCreateTensorDescriptor(mcdnnTensorDescriptor_t *tensorDesc);

/* Destroys a tensor descriptor; NULL is none. */
mcdnnStatus_t mcdnnDestroyTensorDescriptor(mcdnnTensorDescriptor_t tensorDesc);

/* Sets type, 3 to 8 dimensions, and strides in elements. */
mcdnnStatus_t mcdnnSetTensorNdDescriptor(
    mcdnnTensorDescriptor_t tensorDesc,
    mcdnnDataType_t dataType,
    int nbDims,
    const int dimA[],
    const int strideA[]);

/* Sets type and dimensions of a packed tensor of a format. */
mcdnnStatus_t mcdnnSetTensorNdDescriptorEx(
    mcdnnTensorDescriptor_t tensorDesc,
    mcdnnTensorFormat_t format,
    mcdnnDataType_t dataType,
    int nbDims,
    const int dimA[]);

/* What a tensor descriptor says: of the arrays, as many elements as are asked for and there. */
mcdnnStatus_t mcdnnGetTensorNdDescriptor(
    mcdnnTensorDescriptor_t tensorDesc,
    int nbDimsRequested,
    mcdnnDataType_t *dataType,
    int *nbDims,
    int dimA[],
    int strideA[]);

/* As mcdnnSetTensorNdDescriptorEx, of 4 dimensions. */
mcdnnStatus_t mcdnnSetTensor4dDescriptor(
    mcdnnTensorDescriptor_t tensorDesc,
    mcdnnTensorFormat_t format,
    mcdnnDataType_t dataType,
    int n,
    int c,
    int h,
    int w);

/* As mcdnnSetTensorNdDescriptor, of 4 dimensions. */
mcdnnStatus_t mcdnnSetTensor4dDescriptorEx(
    mcdnnTensorDescriptor_t tensorDesc,
    mcdnnDataType_t dataType,
    int n,
    int c,
    int h,
    int w,
    int nStride,
    int cStride,
    int hStride,
    int wStride);

/* What a tensor descriptor of 4 dimensions says. */
mcdnnStatus_t mcdnnGetTensor4dDescriptor(
    mcdnnTensorDescriptor_t tensorDesc,
    mcdnnDataType_t *dataType,
    int *n,
    int *c,
    int *h,
    int *w,
    int *nStride,
    int *cStride,
    int *hStride,
    int *wStride);

/* Bytes from the first element of a tensor to the end of its last one. */
mcdnnStatus_t mcdnnGetTensorSizeInBytes(mcdnnTensorDescriptor_t tensorDesc, size_t *size);

/* Makes a filter descriptor. */
mcdnnStatus_t mcdnnCreateFilterDescriptor(mcdnnFilterDescriptor_t *filterDesc);

/* Destroys a filter descriptor; NULL is none. */
mcdnnStatus_t mcdnnDestroyFilterDescriptor(mcdnnFilterDescriptor_t filterDesc);

/* Sets type, format and 3 to 8 dimensions. */
mcdnnStatus_t mcdnnSetFilterNdDescriptor(
    mcdnnFilterDescriptor_t filterDesc,
    mcdnnDataType_t dataType,
    mcdnnTensorFormat_t format,
    int nbDims,
    const int filterDimA[]);

/* What a filter descriptor says: as many dimensions as are asked for, 8 at most, those that
 * are not there as 0. */
mcdnnStatus_t mcdnnGetFilterNdDescriptor(
    mcdnnFilterDescriptor_t filterDesc,
    int nbDimsRequested,
    mcdnnDataType_t *dataType,
    mcdnnTensorFormat_t *format,
    int *nbDims,
    int filterDimA[]);

/* As mcdnnSetFilterNdDescriptor, of 4 dimensions. */
mcdnnStatus_t mcdnnSetFilter4dDescriptor(
    mcdnnFilterDescriptor_t filterDesc,
    mcdnnDataType_t dataType,
    mcdnnTensorFormat_t format,
    int k,
    int c,
    int h,
    int w);

/* What a filter descriptor of 4 dimensions says. */
mcdnnStatus_t mcdnnGetFilter4dDescriptor(
    mcdnnFilterDescriptor_t filterDesc,
    mcdnnDataType_t *dataType,
    mcdnnTensorFormat_t *format,
    int *k,
    int *c,
    int *h,
    int *w);

/* Bytes of a filter. */
mcdnnStatus_t mcdnnGetFilterSizeInBytes(mcdnnFilterDescriptor_t filterDesc, size_t *size);

/* Dropout
 * ======= */

typedef struct mcdnnDropoutDescriptorStruct *mcdnnDropoutDescriptor_t;

/* Makes a dropout descriptor. */
mcdnnStatus_t mcdnnCreateDropoutDescriptor(mcdnnDropoutDescriptor_t *dropoutDesc);

/* Destroys a dropout descriptor; NULL is none. */
mcdnnStatus_t mcdnnDestroyDropoutDescriptor(mcdnnDropoutDescriptor_t dropoutDesc);

/* Bytes of device memory for the states of random numbers. */
mcdnnStatus_t mcdnnDropoutGetStatesSize(mcdnnHandle_t handle, size_t *sizeInBytes);

/* Bytes of a mask of a tensor's elements. */
mcdnnStatus_t mcdnnDropoutGetReserveSpaceSize(mcdnnTensorDescriptor_t xdesc, size_t *sizeInBytes);

/* Sets the probability of dropping an element, and the seed of the random numbers. States may
 * be NULL: layers keep their own. */
mcdnnStatus_t mcdnnSetDropoutDescriptor(
    mcdnnDropoutDescriptor_t dropoutDesc,
    mcdnnHandle_t handle,
    float dropout,
    void *states,
    size_t stateSizeInBytes,
    unsigned long long seed);

/* As mcdnnSetDropoutDescriptor, without a change to the states. */
mcdnnStatus_t mcdnnRestoreDropoutDescriptor(
    mcdnnDropoutDescriptor_t dropoutDesc,
    mcdnnHandle_t handle,
    float dropout,
    void *states,
    size_t stateSizeInBytes,
    unsigned long long seed);

/* What a dropout descriptor says. */
mcdnnStatus_t mcdnnGetDropoutDescriptor(
    mcdnnDropoutDescriptor_t dropoutDesc,
    mcdnnHandle_t handle,
    float *dropout,
    void **states,
    unsigned long long *seed);

/* Recurrent networks
 * ================== */

#define MCDNN_RNN_PADDED_IO_DISABLED 0
#define MCDNN_RNN_PADDED_IO_ENABLED (1U << 0)

typedef struct mcdnnRNNDescriptorStruct *mcdnnRNNDescriptor_t;
typedef struct mcdnnRNNDataDescriptorStruct *mcdnnRNNDataDescriptor_t;

/* The cell of a network. */
typedef enum {
    MCDNN_RNN_RELU = 0,
    MCDNN_RNN_TANH = 1,
    MCDNN_LSTM = 2,
    MCDNN_GRU = 3
} mcdnnRNNMode_t;

/* The biases of a cell. */
typedef enum {
    MCDNN_RNN_NO_BIAS = 0,
    MCDNN_RNN_SINGLE_INP_BIAS = 1,
    MCDNN_RNN_DOUBLE_BIAS = 2,
    MCDNN_RNN_SINGLE_REC_BIAS = 3
} mcdnnRNNBiasMode_t;

/* The algorithm of a network. Kernels are chosen as for any graph; an algorithm is only what
 * it may be used for. */
typedef enum {
    MCDNN_RNN_ALGO_STANDARD = 0,
    MCDNN_RNN_ALGO_PERSIST_STATIC = 1,
    MCDNN_RNN_ALGO_PERSIST_DYNAMIC = 2,
    MCDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H = 3,
    MCDNN_RNN_ALGO_COUNT = 4
} mcdnnRNNAlgo_t;

/* The directions that a network goes in. */
typedef enum {
    MCDNN_UNIDIRECTIONAL = 0,
    MCDNN_BIDIRECTIONAL = 1
} mcdnnDirectionMode_t;

/* What the first layer does with its input. */
typedef enum {
    MCDNN_LINEAR_INPUT = 0,
    MCDNN_SKIP_INPUT = 1
} mcdnnRNNInputMode_t;

/* Whether the cell state is clipped. */
typedef enum {
    MCDNN_RNN_CLIP_NONE = 0,
    MCDNN_RNN_CLIP_MINMAX = 1
} mcdnnRNNClipMode_t;

/* The order of the vectors of all steps and sequences. */
typedef enum {
    MCDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED = 0,
    MCDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED = 1,
    MCDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED = 2
} mcdnnRNNDataLayout_t;

/* Whether a forward pass keeps what backward passes need. */
typedef enum {
    MCDNN_FWD_MODE_INFERENCE = 0,
    MCDNN_FWD_MODE_TRAINING = 1
} mcdnnForwardMode_t;

/* Whether the gradients of weights are added to those in memory, or replace them. */
typedef enum {
    MCDNN_WGRAD_MODE_ADD = 0,
    MCDNN_WGRAD_MODE_SET = 1
} mcdnnWgradMode_t;

typedef unsigned mcdnnRNNPaddingMode_t;

/* Makes an RNN descriptor (6.2.1.6). */
mcdnnStatus_t mcdnnCreateRNNDescriptor(mcdnnRNNDescriptor_t *rnnDesc);

/* Destroys an RNN descriptor; NULL is none (6.2.1.11). */
mcdnnStatus_t mcdnnDestroyRNNDescriptor(mcdnnRNNDescriptor_t rnnDesc);

/* Describes a network (6.2.1.49). The cell state is not clipped until mcdnnRNNSetClip_v8, and
 * there are no 8-bit integers until mcdnnKilnSetRNNQuantization. */
mcdnnStatus_t mcdnnSetRNNDescriptor_v8(
    mcdnnRNNDescriptor_t rnnDesc,
    mcdnnRNNAlgo_t algo,
    mcdnnRNNMode_t cellMode,
    mcdnnRNNBiasMode_t biasMode,
    mcdnnDirectionMode_t dirMode,
    mcdnnRNNInputMode_t inputMode,
    mcdnnDataType_t dataType,
    mcdnnDataType_t mathPrec,
    mcdnnMathType_t mathType,
    int inputSize,
    int hiddenSize,
    int projSize,
    int numLayers,
    mcdnnDropoutDescriptor_t dropoutDesc,
    unsigned auxFlags);

/* What an RNN descriptor says (6.2.1.21). Places of what is not wanted are NULL. */
mcdnnStatus_t mcdnnGetRNNDescriptor_v8(
    mcdnnRNNDescriptor_t rnnDesc,
    mcdnnRNNAlgo_t *algo,
    mcdnnRNNMode_t *cellMode,
    mcdnnRNNBiasMode_t *biasMode,
    mcdnnDirectionMode_t *dirMode,
    mcdnnRNNInputMode_t *inputMode,
    mcdnnDataType_t *dataType,
    mcdnnDataType_t *mathPrec,
    mcdnnMathType_t *mathType,
    int *inputSize,
    int *hiddenSize,
    int *projSize,
    int *numLayers,
    mcdnnDropoutDescriptor_t *dropoutDesc,
    unsigned *auxFlags);

/* Sets the clip of the cell state (6.2.1.42); it has no effect on cells without one. */
mcdnnStatus_t mcdnnRNNSetClip_v8(
    mcdnnRNNDescriptor_t rnnDesc,
    mcdnnRNNClipMode_t clipMode,
    mcdnnNanPropagation_t clipNanOpt,
    double lclip,
    double rclip);

/* The clip of the cell state (6.2.1.40). */
mcdnnStatus_t mcdnnRNNGetClip_v8(
    mcdnnRNNDescriptor_t rnnDesc,
    mcdnnRNNClipMode_t *clipMode,
    mcdnnNanPropagation_t *clipNanOpt,
    double *lclip,
    double *rclip);

/* Makes an RNN data descriptor (6.2.1.5). */
mcdnnStatus_t mcdnnCreateRNNDataDescriptor(mcdnnRNNDataDescriptor_t *rnnDataDesc);

/* Destroys an RNN data descriptor; NULL is none (6.2.1.10). */
mcdnnStatus_t mcdnnDestroyRNNDataDescriptor(mcdnnRNNDataDescriptor_t rnnDataDesc);

/* Describes the vectors of all steps and sequences (6.2.1.47). Of outputs, those beyond a
 * sequence's length are filled with the value at paddingFill, of type dataType; with NULL they
 * are not defined. MCDNN_DATA_INT8 and MCDNN_DATA_UINT8 are of networks with a quantization
 * (mcdnnKilnSetRNNQuantization). */
mcdnnStatus_t mcdnnSetRNNDataDescriptor(
    mcdnnRNNDataDescriptor_t rnnDataDesc,
    mcdnnDataType_t dataType,
    mcdnnRNNDataLayout_t layout,
    int maxSeqLength,
    int batchSize,
    int vectorSize,
    const int seqLengthArray[],
    void *paddingFill);

/* What an RNN data descriptor says (6.2.1.19): as many lengths as are asked for, those that
 * are not there as 0. */
mcdnnStatus_t mcdnnGetRNNDataDescriptor(
    mcdnnRNNDataDescriptor_t rnnDataDesc,
    mcdnnDataType_t *dataType,
    mcdnnRNNDataLayout_t *layout,
    int *maxSeqLength,
    int *batchSize,
    int *vectorSize,
    int arrayLengthRequested,
    int seqLengthArray[],
    void *paddingFill);

/* Bytes of the weights of a network (6.2.1.32). */
mcdnnStatus_t mcdnnGetRNNWeightSpaceSize(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    size_t *weightSpaceSize);

/* Shape and address of a weight matrix and of its bias (6.2.1.31). What the network does not
 * have has no dimensions and the address NULL. The weights may be in memory of the host. */
mcdnnStatus_t mcdnnGetRNNWeightParams(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    int pseudoLayer,
    size_t weightSpaceSize,
    const void *weightSpace,
    int linLayerID,
    mcdnnTensorDescriptor_t mDesc,
    void **mAddr,
    mcdnnTensorDescriptor_t bDesc,
    void **bAddr);

/* Compiles the kernels of a network for a number of sequences, or finds them in a cache
 * (6.2.1.2): those of inference for sequences step by step, which without padded input and
 * output are packed. */
mcdnnStatus_t mcdnnBuildRNNDynamic(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    int miniBatch);

/* Bytes of the workspace, and in training of the reserve space, for vectors as described
 * (6.2.1.29). */
mcdnnStatus_t mcdnnGetRNNTempSpaceSizes(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    mcdnnForwardMode_t fwdMode,
    mcdnnRNNDataDescriptor_t xDesc,
    size_t *workSpaceSize,
    size_t *reserveSpaceSize);

/* The forward pass (6.2.1.36), queued on the handle's stream. Initial states that are NULL are
 * 0, final ones that are NULL are not written. devSeqLengths are the lengths of the sequences
 * in device memory; with NULL, those of xDesc. */
mcdnnStatus_t mcdnnRNNForward(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    mcdnnForwardMode_t fwdMode,
    const int devSeqLengths[],
    mcdnnRNNDataDescriptor_t xDesc,
    const void *x,
    mcdnnRNNDataDescriptor_t yDesc,
    void *y,
    mcdnnTensorDescriptor_t hDesc,
    const void *hx,
    void *hy,
    mcdnnTensorDescriptor_t cDesc,
    const void *cx,
    void *cy,
    size_t weightSpaceSize,
    const void *weightSpace,
    size_t workSpaceSize,
    void *workSpace,
    size_t reserveSpaceSize,
    void *reserveSpace);

/* The backward pass of the data, after a forward pass in training with the same reserve space:
 * the gradients of x and of the initial states. Gradients of final states that are NULL are 0,
 * those of initial states that are NULL are not written. */
mcdnnStatus_t mcdnnRNNBackwardData_v8(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    const int devSeqLengths[],
    mcdnnRNNDataDescriptor_t yDesc,
    const void *y,
    const void *dy,
    mcdnnRNNDataDescriptor_t xDesc,
    void *dx,
    mcdnnTensorDescriptor_t hDesc,
    const void *hx,
    const void *dhy,
    void *dhx,
    mcdnnTensorDescriptor_t cDesc,
    const void *cx,
    const void *dcy,
    void *dcx,
    size_t weightSpaceSize,
    const void *weightSpace,
    size_t workSpaceSize,
    void *workSpace,
    size_t reserveSpaceSize,
    void *reserveSpace);

/* The backward pass of the weights, after that of the data with the same reserve space: adds
 * to the gradients in memory. MCDNN_WGRAD_MODE_SET is not supported, as in cuDNN. */
mcdnnStatus_t mcdnnRNNBackwardWeights_v8(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    mcdnnWgradMode_t addGrad,
    const int devSeqLengths[],
    mcdnnRNNDataDescriptor_t xDesc,
    const void *x,
    mcdnnTensorDescriptor_t hDesc,
    const void *hx,
    mcdnnRNNDataDescriptor_t yDesc,
    const void *y,
    size_t weightSpaceSize,
    void *dweightSpace,
    size_t workSpaceSize,
    void *workSpace,
    size_t reserveSpaceSize,
    void *reserveSpace);

/* Multi-head attention
 * ==================== */

#define MCDNN_SEQDATA_DIM_COUNT 4
#define MCDNN_ATTN_WKIND_COUNT 8
#define MCDNN_ATTN_QUERYMAP_ALL_TO_ONE 0
#define MCDNN_ATTN_QUERYMAP_ONE_TO_ONE (1U << 0)
#define MCDNN_ATTN_DISABLE_PROJ_BIASES 0
#define MCDNN_ATTN_ENABLE_PROJ_BIASES (1U << 1)

typedef struct mcdnnSeqDataDescriptorStruct *mcdnnSeqDataDescriptor_t;
typedef struct mcdnnAttnDescriptorStruct *mcdnnAttnDescriptor_t;

/* A dimension of sequence data. */
typedef enum {
    MCDNN_SEQDATA_TIME_DIM = 0,
    MCDNN_SEQDATA_BATCH_DIM = 1,
    MCDNN_SEQDATA_BEAM_DIM = 2,
    MCDNN_SEQDATA_VECT_DIM = 3
} mcdnnSeqDataAxis_t;

/* Weights or biases of a layer. */
typedef enum {
    MCDNN_MH_ATTN_Q_WEIGHTS = 0,
    MCDNN_MH_ATTN_K_WEIGHTS = 1,
    MCDNN_MH_ATTN_V_WEIGHTS = 2,
    MCDNN_MH_ATTN_O_WEIGHTS = 3,
    MCDNN_MH_ATTN_Q_BIASES = 4,
    MCDNN_MH_ATTN_K_BIASES = 5,
    MCDNN_MH_ATTN_V_BIASES = 6,
    MCDNN_MH_ATTN_O_BIASES = 7
} mcdnnMultiHeadAttnWeightKind_t;

/* Makes a sequence data descriptor (6.2.1.7). */
mcdnnStatus_t mcdnnCreateSeqDataDescriptor(mcdnnSeqDataDescriptor_t *seqDataDesc);

/* Destroys a sequence data descriptor; NULL is none (6.2.1.12). */
mcdnnStatus_t mcdnnDestroySeqDataDescriptor(mcdnnSeqDataDescriptor_t seqDataDesc);

/* Describes the vectors of sequences (6.2.1.53): extents by axis, the order of axes in memory
 * from the outermost one, of which the last is that of vectors, and the length of each
 * sequence, the beam index fastest. paddingFill must be NULL. */
mcdnnStatus_t mcdnnSetSeqDataDescriptor(
    mcdnnSeqDataDescriptor_t seqDataDesc,
    mcdnnDataType_t dataType,
    int nbDims,
    const int dimA[],
    const mcdnnSeqDataAxis_t axes[],
    size_t seqLengthArraySize,
    const int seqLengthArray[],
    void *paddingFill);

/* What a sequence data descriptor says (6.2.1.34). Places of what is not wanted are NULL; of
 * arrays, as many elements as are asked for and there. */
mcdnnStatus_t mcdnnGetSeqDataDescriptor(
    mcdnnSeqDataDescriptor_t seqDataDesc,
    mcdnnDataType_t *dataType,
    int *nbDims,
    int nbDimsRequested,
    int dimA[],
    mcdnnSeqDataAxis_t axes[],
    size_t *seqLengthArraySize,
    size_t seqLengthSizeRequested,
    int seqLengthArray[],
    void *paddingFill);

/* Makes an attention descriptor (6.2.1.3). */
mcdnnStatus_t mcdnnCreateAttnDescriptor(mcdnnAttnDescriptor_t *attnDesc);

/* Destroys an attention descriptor; NULL is none (6.2.1.8). */
mcdnnStatus_t mcdnnDestroyAttnDescriptor(mcdnnAttnDescriptor_t attnDesc);

/* Describes a layer (6.2.1.43). A projection of size 0 is none. */
mcdnnStatus_t mcdnnSetAttnDescriptor(
    mcdnnAttnDescriptor_t attnDesc,
    unsigned attnMode,
    int nHeads,
    double smScaler,
    mcdnnDataType_t dataType,
    mcdnnDataType_t computePrec,
    mcdnnMathType_t mathType,
    mcdnnDropoutDescriptor_t attnDropoutDesc,
    mcdnnDropoutDescriptor_t postDropoutDesc,
    int qSize,
    int kSize,
    int vSize,
    int qProjSize,
    int kProjSize,
    int vProjSize,
    int oProjSize,
    int qoMaxSeqLength,
    int kvMaxSeqLength,
    int maxBatchSize,
    int maxBeamSize);

/* What an attention descriptor says (6.2.1.14); zeros before it is set. Places of what is not
 * wanted are NULL. */
mcdnnStatus_t mcdnnGetAttnDescriptor(
    mcdnnAttnDescriptor_t attnDesc,
    unsigned *attnMode,
    int *nHeads,
    double *smScaler,
    mcdnnDataType_t *dataType,
    mcdnnDataType_t *computePrec,
    mcdnnMathType_t *mathType,
    mcdnnDropoutDescriptor_t *attnDropoutDesc,
    mcdnnDropoutDescriptor_t *postDropoutDesc,
    int *qSize,
    int *kSize,
    int *vSize,
    int *qProjSize,
    int *kProjSize,
    int *vProjSize,
    int *oProjSize,
    int *qoMaxSeqLength,
    int *kvMaxSeqLength,
    int *maxBatchSize,
    int *maxBeamSize);

/* Bytes of weights, workspace and reserve space of the largest call (6.2.1.15). With NULL for
 * the reserve space, the workspace is that of inference. */
mcdnnStatus_t mcdnnGetMultiHeadAttnBuffers(
    mcdnnHandle_t handle,
    mcdnnAttnDescriptor_t attnDesc,
    size_t *weightSizeInBytes,
    size_t *workSpaceSizeInBytes,
    size_t *reserveSpaceSizeInBytes);

/* Shape [heads, projected size, size], strides and address of weights or biases (6.2.1.16).
 * Those that are absent have no dimensions and the address NULL. The weights may be in memory
 * of the host. */
mcdnnStatus_t mcdnnGetMultiHeadAttnWeights(
    mcdnnHandle_t handle,
    mcdnnAttnDescriptor_t attnDesc,
    mcdnnMultiHeadAttnWeightKind_t wKind,
    size_t weightSizeInBytes,
    const void *weights,
    mcdnnTensorDescriptor_t wDesc,
    void **wAddr);

/* The forward pass (6.2.1.35), of one time step or, with a negative currIdx, of all; with a
 * reserve space it is one of training. Windows are in memory of the host, lengths in that of
 * the device; with NULL, lengths are those of the descriptors. */
mcdnnStatus_t mcdnnMultiHeadAttnForward(
    mcdnnHandle_t handle,
    mcdnnAttnDescriptor_t attnDesc,
    int currIdx,
    const int loWinIdx[],
    const int hiWinIdx[],
    const int devSeqLengthsQO[],
    const int devSeqLengthsKV[],
    mcdnnSeqDataDescriptor_t qDesc,
    const void *queries,
    const void *residuals,
    mcdnnSeqDataDescriptor_t kDesc,
    const void *keys,
    mcdnnSeqDataDescriptor_t vDesc,
    const void *values,
    mcdnnSeqDataDescriptor_t oDesc,
    void *out,
    size_t weightSizeInBytes,
    const void *weights,
    size_t workSpaceSizeInBytes,
    void *workSpace,
    size_t reserveSpaceSizeInBytes,
    void *reserveSpace);

/* The backward pass of the data, after a forward pass in training with the same reserve space
 * on the same device: the gradients of queries, keys and values. Windows are those of the
 * forward pass and may be NULL. */
mcdnnStatus_t mcdnnMultiHeadAttnBackwardData(
    mcdnnHandle_t handle,
    mcdnnAttnDescriptor_t attnDesc,
    const int loWinIdx[],
    const int hiWinIdx[],
    const int devSeqLengthsDQDO[],
    const int devSeqLengthsDKDV[],
    mcdnnSeqDataDescriptor_t doDesc,
    const void *dout,
    mcdnnSeqDataDescriptor_t dqDesc,
    void *dqueries,
    const void *queries,
    mcdnnSeqDataDescriptor_t dkDesc,
    void *dkeys,
    const void *keys,
    mcdnnSeqDataDescriptor_t dvDesc,
    void *dvalues,
    const void *values,
    size_t weightSizeInBytes,
    const void *weights,
    size_t workSpaceSizeInBytes,
    void *workSpace,
    size_t reserveSpaceSizeInBytes,
    void *reserveSpace);

/* The backward pass of the weights, after that of the data with the same reserve space on the
 * same device. */
mcdnnStatus_t mcdnnMultiHeadAttnBackwardWeights(
    mcdnnHandle_t handle,
    mcdnnAttnDescriptor_t attnDesc,
    mcdnnWgradMode_t addGrad,
    mcdnnSeqDataDescriptor_t qDesc,
    const void *queries,
    mcdnnSeqDataDescriptor_t kDesc,
    const void *keys,
    mcdnnSeqDataDescriptor_t vDesc,
    const void *values,
    mcdnnSeqDataDescriptor_t doDesc,
    const void *dout,
    size_t weightSizeInBytes,
    const void *weights,
    void *dweights,
    size_t workSpaceSizeInBytes,
    void *workSpace,
    size_t reserveSpaceSizeInBytes,
    void *reserveSpace);

/* Graphs of operations
 * ==================== */

/* Whether a filter is turned around. */
typedef enum {
    MCDNN_CONVOLUTION = 0,
    MCDNN_CROSS_CORRELATION = 1
} mcdnnConvolutionMode_t;

/* A pointwise operation. */
typedef enum {
    MCDNN_POINTWISE_ADD = 0,
    MCDNN_POINTWISE_MUL = 1,
    MCDNN_POINTWISE_MIN = 2,
    MCDNN_POINTWISE_MAX = 3,
    MCDNN_POINTWISE_SQRT = 4,
    MCDNN_POINTWISE_ADD_SQUARE = 5,
    MCDNN_POINTWISE_DIV = 6,
    MCDNN_POINTWISE_MOD = 7,
    MCDNN_POINTWISE_POW = 8,
    MCDNN_POINTWISE_SUB = 9,
    MCDNN_POINTWISE_ABS = 10,
    MCDNN_POINTWISE_CEIL = 11,
    MCDNN_POINTWISE_COS = 12,
    MCDNN_POINTWISE_EXP = 13,
    MCDNN_POINTWISE_FLOOR = 14,
    MCDNN_POINTWISE_LOG = 15,
    MCDNN_POINTWISE_NEG = 16,
    MCDNN_POINTWISE_RSQRT = 17,
    MCDNN_POINTWISE_SIN = 18,
    MCDNN_POINTWISE_TAN = 19,
    MCDNN_POINTWISE_ERF = 20,
    MCDNN_POINTWISE_IDENTITY = 21,
    MCDNN_POINTWISE_RELU_FWD = 100,
    MCDNN_POINTWISE_TANH_FWD = 101,
    MCDNN_POINTWISE_SIGMOID_FWD = 102,
    MCDNN_POINTWISE_ELU_FWD = 103,
    MCDNN_POINTWISE_GELU_FWD = 104,
    MCDNN_POINTWISE_SOFTPLUS_FWD = 105,
    MCDNN_POINTWISE_SWISH_FWD = 106,
    MCDNN_POINTWISE_GELU_APPROX_TANH_FWD = 107,
    MCDNN_POINTWISE_RELU_BWD = 200,
    MCDNN_POINTWISE_TANH_BWD = 201,
    MCDNN_POINTWISE_SIGMOID_BWD = 202,
    MCDNN_POINTWISE_ELU_BWD = 203,
    MCDNN_POINTWISE_GELU_BWD = 204,
    MCDNN_POINTWISE_SOFTPLUS_BWD = 205,
    MCDNN_POINTWISE_SWISH_BWD = 206,
    MCDNN_POINTWISE_GELU_APPROX_TANH_BWD = 207,
    MCDNN_POINTWISE_CMP_EQ = 300,
    MCDNN_POINTWISE_CMP_NEQ = 301,
    MCDNN_POINTWISE_CMP_GT = 302,
    MCDNN_POINTWISE_CMP_GE = 303,
    MCDNN_POINTWISE_CMP_LT = 304,
    MCDNN_POINTWISE_CMP_LE = 305,
    MCDNN_POINTWISE_LOGICAL_AND = 400,
    MCDNN_POINTWISE_LOGICAL_OR = 401,
    MCDNN_POINTWISE_LOGICAL_NOT = 402,
    MCDNN_POINTWISE_GEN_INDEX = 501,
    MCDNN_POINTWISE_BINARY_SELECT = 601
} mcdnnPointwiseMode_t;

/* How elements are reduced. */
typedef enum {
    MCDNN_REDUCE_TENSOR_ADD = 0,
    MCDNN_REDUCE_TENSOR_MUL = 1,
    MCDNN_REDUCE_TENSOR_MIN = 2,
    MCDNN_REDUCE_TENSOR_MAX = 3,
    MCDNN_REDUCE_TENSOR_AMAX = 4,
    MCDNN_REDUCE_TENSOR_AVG = 5,
    MCDNN_REDUCE_TENSOR_NORM1 = 6,
    MCDNN_REDUCE_TENSOR_NORM2 = 7,
    MCDNN_REDUCE_TENSOR_MUL_NO_ZEROS = 8
} mcdnnReduceTensorOp_t;

/* How a tensor is resampled. */
typedef enum {
    MCDNN_RESAMPLE_NEAREST = 0,
    MCDNN_RESAMPLE_BILINEAR = 1,
    MCDNN_RESAMPLE_AVGPOOL = 2,
    MCDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING = 2,
    MCDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING = 4,
    MCDNN_RESAMPLE_MAXPOOL = 3
} mcdnnResampleMode_t;

/* What is beside a resampled tensor. */
typedef enum {
    MCDNN_ZERO_PAD = 0,
    MCDNN_NEG_INF_PAD = 1,
    MCDNN_EDGE_VAL_PAD = 2
} mcdnnPaddingMode_t;

/* Statistics of a tensor. */
typedef enum {
    MCDNN_GENSTATS_SUM_SQSUM = 0
} mcdnnGenStatsMode_t;

/* What statistics of a batch norm are computed from. */
typedef enum {
    MCDNN_BN_FINALIZE_STATISTICS_TRAINING = 0,
    MCDNN_BN_FINALIZE_STATISTICS_INFERENCE = 1
} mcdnnBnFinalizeStatsMode_t;

/* How random numbers are distributed. */
typedef enum {
    MCDNN_RNG_DISTRIBUTION_BERNOULLI = 0,
    MCDNN_RNG_DISTRIBUTION_UNIFORM = 1,
    MCDNN_RNG_DISTRIBUTION_NORMAL = 2
} mcdnnRngDistribution_t;

/* Whether a flag is set or waited for. */
typedef enum {
    MCDNN_SIGNAL_SET = 0,
    MCDNN_SIGNAL_WAIT = 1
} mcdnnSignalMode_t;

/* What a norm takes the mean of. */
typedef enum {
    MCDNN_LAYER_NORM = 0,
    MCDNN_INSTANCE_NORM = 1,
    MCDNN_BATCH_NORM = 2,
    MCDNN_GROUP_NORM = 3
} mcdnnBackendNormMode_t;

/* Whether a norm keeps what its gradients need. */
typedef enum {
    MCDNN_NORM_FWD_INFERENCE = 0,
    MCDNN_NORM_FWD_TRAINING = 1
} mcdnnBackendNormFwdPhase_t;

/* How elements of a tensor are reordered. */
typedef enum {
    MCDNN_TENSOR_REORDERING_NONE = 0,
    MCDNN_TENSOR_REORDERING_INT8x32 = 1,
    MCDNN_TENSOR_REORDERING_F16x16 = 2
} mcdnnBackendTensorReordering_t;

/* How engines are chosen. */
typedef enum {
    MCDNN_HEUR_MODE_INSTANT = 0,
    MCDNN_HEUR_MODE_B = 1,
    MCDNN_HEUR_MODE_FALLBACK = 2,
    MCDNN_HEUR_MODE_A = 3
} mcdnnBackendHeurMode_t;

/* A knob of an engine. */
typedef enum {
    MCDNN_KNOB_TYPE_SPLIT_K = 0,
    MCDNN_KNOB_TYPE_SWIZZLE = 1,
    MCDNN_KNOB_TYPE_TILE_SIZE = 2,
    MCDNN_KNOB_TYPE_USE_TEX = 3,
    MCDNN_KNOB_TYPE_EDGE = 4,
    MCDNN_KNOB_TYPE_KBLOCK = 5,
    MCDNN_KNOB_TYPE_LDGA = 6,
    MCDNN_KNOB_TYPE_LDGB = 7,
    MCDNN_KNOB_TYPE_CHUNK_K = 8,
    MCDNN_KNOB_TYPE_SPLIT_H = 9,
    MCDNN_KNOB_TYPE_WINO_TILE = 10,
    MCDNN_KNOB_TYPE_MULTIPLY = 11,
    MCDNN_KNOB_TYPE_SPLIT_K_BUF = 12,
    MCDNN_KNOB_TYPE_TILEK = 13,
    MCDNN_KNOB_TYPE_STAGES = 14,
    MCDNN_KNOB_TYPE_REDUCTION_MODE = 15,
    MCDNN_KNOB_TYPE_CTA_SPLIT_K_MODE = 16,
    MCDNN_KNOB_TYPE_SPLIT_K_SLC = 17,
    MCDNN_KNOB_TYPE_IDX_MODE = 18,
    MCDNN_KNOB_TYPE_SLICED = 19,
    MCDNN_KNOB_TYPE_SPLIT_RS = 20,
    MCDNN_KNOB_TYPE_SINGLEBUFFER = 21,
    MCDNN_KNOB_TYPE_LDGC = 22,
    MCDNN_KNOB_TYPE_SPECFILT = 23,
    MCDNN_KNOB_TYPE_KERNEL_CFG = 24,
    MCDNN_KNOB_TYPE_WORKSPACE = 25,
    MCDNN_KNOB_TYPE_COUNTS = 26
} mcdnnBackendKnobType_t;

/* The layout that an engine prefers. */
typedef enum {
    MCDNN_LAYOUT_TYPE_PREFERRED_NCHW = 0,
    MCDNN_LAYOUT_TYPE_PREFERRED_NHWC = 1,
    MCDNN_LAYOUT_TYPE_PREFERRED_PAD4CK = 2,
    MCDNN_LAYOUT_TYPE_PREFERRED_PAD8CK = 3,
    MCDNN_LAYOUT_TYPE_COUNT = 4
} mcdnnBackendLayoutType_t;

/* Notes of how an engine computes. */
typedef enum {
    MCDNN_NUMERICAL_NOTE_TENSOR_CORE = 0,
    MCDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS = 1,
    MCDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION = 2,
    MCDNN_NUMERICAL_NOTE_FFT = 3,
    MCDNN_NUMERICAL_NOTE_NONDETERMINISTIC = 4,
    MCDNN_NUMERICAL_NOTE_WINOGRAD = 5,
    MCDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 = 6,
    MCDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 = 7,
    MCDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13 = 8,
    MCDNN_NUMERICAL_NOTE_TYPE_COUNT = 9
} mcdnnBackendNumericalNote_t;

/* Notes of what an engine does. */
typedef enum {
    MCDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION = 0,
    MCDNN_BEHAVIOR_NOTE_REQUIRES_FILTER_INT8x32_REORDER = 1,
    MCDNN_BEHAVIOR_NOTE_REQUIRES_BIAS_INT8x32_REORDER = 2,
    MCDNN_BEHAVIOR_NOTE_TYPE_COUNT = 3
} mcdnnBackendBehaviorNote_t;

/* What a descriptor describes. */
typedef enum {
    MCDNN_BACKEND_POINTWISE_DESCRIPTOR = 0,
    MCDNN_BACKEND_CONVOLUTION_DESCRIPTOR = 1,
    MCDNN_BACKEND_ENGINE_DESCRIPTOR = 2,
    MCDNN_BACKEND_ENGINECFG_DESCRIPTOR = 3,
    MCDNN_BACKEND_ENGINEHEUR_DESCRIPTOR = 4,
    MCDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR = 5,
    MCDNN_BACKEND_INTERMEDIATE_INFO_DESCRIPTOR = 6,
    MCDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR = 7,
    MCDNN_BACKEND_KNOB_INFO_DESCRIPTOR = 8,
    MCDNN_BACKEND_LAYOUT_INFO_DESCRIPTOR = 9,
    MCDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR = 10,
    MCDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR = 11,
    MCDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR = 12,
    MCDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR = 13,
    MCDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR = 14,
    MCDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR = 15,
    MCDNN_BACKEND_VARIANT_PACK_DESCRIPTOR = 16,
    MCDNN_BACKEND_TENSOR_DESCRIPTOR = 17,
    MCDNN_BACKEND_MATMUL_DESCRIPTOR = 18,
    MCDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR = 19,
    MCDNN_BACKEND_OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR = 20,
    MCDNN_BACKEND_REDUCTION_DESCRIPTOR = 21,
    MCDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR = 22,
    MCDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR = 23,
    MCDNN_BACKEND_RESAMPLE_DESCRIPTOR = 24,
    MCDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR = 25,
    MCDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR = 26,
    MCDNN_BACKEND_OPERATION_CONCAT_DESCRIPTOR = 27,
    MCDNN_BACKEND_OPERATION_SIGNAL_DESCRIPTOR = 28,
    MCDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR = 29,
    MCDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR = 30,
    MCDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR = 31,
    MCDNN_BACKEND_RNG_DESCRIPTOR = 32,
    MCDNN_BACKEND_OPERATION_RNG_DESCRIPTOR = 33
} mcdnnBackendDescriptorType_t;

/* An attribute of a backend descriptor. */
typedef enum {
    MCDNN_ATTR_POINTWISE_MODE = 0,
    MCDNN_ATTR_POINTWISE_MATH_PREC = 1,
    MCDNN_ATTR_POINTWISE_NAN_PROPAGATION = 2,
    MCDNN_ATTR_POINTWISE_RELU_LOWER_CLIP = 3,
    MCDNN_ATTR_POINTWISE_RELU_UPPER_CLIP = 4,
    MCDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE = 5,
    MCDNN_ATTR_POINTWISE_ELU_ALPHA = 6,
    MCDNN_ATTR_POINTWISE_SOFTPLUS_BETA = 7,
    MCDNN_ATTR_POINTWISE_SWISH_BETA = 8,
    MCDNN_ATTR_POINTWISE_AXIS = 9,
    MCDNN_ATTR_CONVOLUTION_COMP_TYPE = 100,
    MCDNN_ATTR_CONVOLUTION_CONV_MODE = 101,
    MCDNN_ATTR_CONVOLUTION_DILATIONS = 102,
    MCDNN_ATTR_CONVOLUTION_FILTER_STRIDES = 103,
    MCDNN_ATTR_CONVOLUTION_POST_PADDINGS = 104,
    MCDNN_ATTR_CONVOLUTION_PRE_PADDINGS = 105,
    MCDNN_ATTR_CONVOLUTION_SPATIAL_DIMS = 106,
    MCDNN_ATTR_ENGINEHEUR_MODE = 200,
    MCDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH = 201,
    MCDNN_ATTR_ENGINEHEUR_RESULTS = 202,
    MCDNN_ATTR_ENGINECFG_ENGINE = 300,
    MCDNN_ATTR_ENGINECFG_INTERMEDIATE_INFO = 301,
    MCDNN_ATTR_ENGINECFG_KNOB_CHOICES = 302,
    MCDNN_ATTR_EXECUTION_PLAN_HANDLE = 400,
    MCDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG = 401,
    MCDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE = 402,
    MCDNN_ATTR_EXECUTION_PLAN_COMPUTED_INTERMEDIATE_UIDS = 403,
    MCDNN_ATTR_EXECUTION_PLAN_RUN_ONLY_INTERMEDIATE_UIDS = 404,
    MCDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION = 405,
    MCDNN_ATTR_INTERMEDIATE_INFO_UNIQUE_ID = 500,
    MCDNN_ATTR_INTERMEDIATE_INFO_SIZE = 501,
    MCDNN_ATTR_INTERMEDIATE_INFO_DEPENDENT_DATA_UIDS = 502,
    MCDNN_ATTR_INTERMEDIATE_INFO_DEPENDENT_ATTRIBUTES = 503,
    MCDNN_ATTR_KNOB_CHOICE_KNOB_TYPE = 600,
    MCDNN_ATTR_KNOB_CHOICE_KNOB_VALUE = 601,
    MCDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA = 700,
    MCDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA = 701,
    MCDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC = 702,
    MCDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W = 703,
    MCDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X = 704,
    MCDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y = 705,
    MCDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA = 706,
    MCDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA = 707,
    MCDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC = 708,
    MCDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W = 709,
    MCDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX = 710,
    MCDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY = 711,
    MCDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA = 712,
    MCDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA = 713,
    MCDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC = 714,
    MCDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW = 715,
    MCDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X = 716,
    MCDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY = 717,
    MCDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR = 750,
    MCDNN_ATTR_OPERATION_POINTWISE_XDESC = 751,
    MCDNN_ATTR_OPERATION_POINTWISE_BDESC = 752,
    MCDNN_ATTR_OPERATION_POINTWISE_YDESC = 753,
    MCDNN_ATTR_OPERATION_POINTWISE_ALPHA1 = 754,
    MCDNN_ATTR_OPERATION_POINTWISE_ALPHA2 = 755,
    MCDNN_ATTR_OPERATION_POINTWISE_DXDESC = 756,
    MCDNN_ATTR_OPERATION_POINTWISE_DYDESC = 757,
    MCDNN_ATTR_OPERATION_POINTWISE_TDESC = 758,
    MCDNN_ATTR_OPERATION_GENSTATS_MODE = 770,
    MCDNN_ATTR_OPERATION_GENSTATS_MATH_PREC = 771,
    MCDNN_ATTR_OPERATION_GENSTATS_XDESC = 772,
    MCDNN_ATTR_OPERATION_GENSTATS_SUMDESC = 773,
    MCDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC = 774,
    MCDNN_ATTR_OPERATION_BN_FINALIZE_STATS_MODE = 780,
    MCDNN_ATTR_OPERATION_BN_FINALIZE_MATH_PREC = 781,
    MCDNN_ATTR_OPERATION_BN_FINALIZE_Y_SUM_DESC = 782,
    MCDNN_ATTR_OPERATION_BN_FINALIZE_Y_SQ_SUM_DESC = 783,
    MCDNN_ATTR_OPERATION_BN_FINALIZE_SCALE_DESC = 784,
    MCDNN_ATTR_OPERATION_BN_FINALIZE_BIAS_DESC = 785,
    MCDNN_ATTR_OPERATION_BN_FINALIZE_PREV_RUNNING_MEAN_DESC = 786,
    MCDNN_ATTR_OPERATION_BN_FINALIZE_PREV_RUNNING_VAR_DESC = 787,
    MCDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_MEAN_DESC = 788,
    MCDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_VAR_DESC = 789,
    MCDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_MEAN_DESC = 790,
    MCDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_INV_STD_DESC = 791,
    MCDNN_ATTR_OPERATION_BN_FINALIZE_EQ_SCALE_DESC = 792,
    MCDNN_ATTR_OPERATION_BN_FINALIZE_EQ_BIAS_DESC = 793,
    MCDNN_ATTR_OPERATION_BN_FINALIZE_ACCUM_COUNT_DESC = 794,
    MCDNN_ATTR_OPERATION_BN_FINALIZE_EPSILON_DESC = 795,
    MCDNN_ATTR_OPERATION_BN_FINALIZE_EXP_AVERATE_FACTOR_DESC = 796,
    MCDNN_ATTR_OPERATIONGRAPH_HANDLE = 800,
    MCDNN_ATTR_OPERATIONGRAPH_OPS = 801,
    MCDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT = 802,
    MCDNN_ATTR_OPERATIONGRAPH_ENGINE_SUPPORTED_COUNT = 803,
    MCDNN_ATTR_TENSOR_BYTE_ALIGNMENT = 900,
    MCDNN_ATTR_TENSOR_DATA_TYPE = 901,
    MCDNN_ATTR_TENSOR_DIMENSIONS = 902,
    MCDNN_ATTR_TENSOR_STRIDES = 903,
    MCDNN_ATTR_TENSOR_VECTOR_COUNT = 904,
    MCDNN_ATTR_TENSOR_VECTORIZED_DIMENSION = 905,
    MCDNN_ATTR_TENSOR_UNIQUE_ID = 906,
    MCDNN_ATTR_TENSOR_IS_VIRTUAL = 907,
    MCDNN_ATTR_TENSOR_IS_BY_VALUE = 908,
    MCDNN_ATTR_TENSOR_REORDERING_MODE = 909,
    MCDNN_ATTR_VARIANT_PACK_UNIQUE_IDS = 1000,
    MCDNN_ATTR_VARIANT_PACK_DATA_POINTERS = 1001,
    MCDNN_ATTR_VARIANT_PACK_INTERMEDIATES = 1002,
    MCDNN_ATTR_VARIANT_PACK_WORKSPACE = 1003,
    MCDNN_ATTR_LAYOUT_INFO_TENSOR_UID = 1100,
    MCDNN_ATTR_LAYOUT_INFO_TYPES = 1101,
    MCDNN_ATTR_KNOB_INFO_TYPE = 1200,
    MCDNN_ATTR_KNOB_INFO_MAXIMUM_VALUE = 1201,
    MCDNN_ATTR_KNOB_INFO_MINIMUM_VALUE = 1202,
    MCDNN_ATTR_KNOB_INFO_STRIDE = 1203,
    MCDNN_ATTR_ENGINE_OPERATION_GRAPH = 1300,
    MCDNN_ATTR_ENGINE_GLOBAL_INDEX = 1301,
    MCDNN_ATTR_ENGINE_KNOB_INFO = 1302,
    MCDNN_ATTR_ENGINE_NUMERICAL_NOTE = 1303,
    MCDNN_ATTR_ENGINE_LAYOUT_INFO = 1304,
    MCDNN_ATTR_ENGINE_BEHAVIOR_NOTE = 1305,
    MCDNN_ATTR_MATMUL_COMP_TYPE = 1500,
    MCDNN_ATTR_OPERATION_MATMUL_ADESC = 1520,
    MCDNN_ATTR_OPERATION_MATMUL_BDESC = 1521,
    MCDNN_ATTR_OPERATION_MATMUL_CDESC = 1522,
    MCDNN_ATTR_OPERATION_MATMUL_DESC = 1523,
    MCDNN_ATTR_OPERATION_MATMUL_IRREGULARLY_STRIDED_BATCH_COUNT = 1524,
    MCDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC = 1525,
    MCDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC = 1526,
    MCDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC = 1527,
    MCDNN_ATTR_REDUCTION_OPERATOR = 1600,
    MCDNN_ATTR_REDUCTION_COMP_TYPE = 1601,
    MCDNN_ATTR_OPERATION_REDUCTION_XDESC = 1610,
    MCDNN_ATTR_OPERATION_REDUCTION_YDESC = 1611,
    MCDNN_ATTR_OPERATION_REDUCTION_DESC = 1612,
    MCDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC = 1620,
    MCDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC = 1621,
    MCDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC = 1622,
    MCDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC = 1623,
    MCDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC = 1624,
    MCDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC = 1625,
    MCDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC = 1626,
    MCDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC = 1627,
    MCDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC = 1628,
    MCDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC = 1629,
    MCDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS = 1630,
    MCDNN_ATTR_RESAMPLE_MODE = 1700,
    MCDNN_ATTR_RESAMPLE_COMP_TYPE = 1701,
    MCDNN_ATTR_RESAMPLE_SPATIAL_DIMS = 1702,
    MCDNN_ATTR_RESAMPLE_POST_PADDINGS = 1703,
    MCDNN_ATTR_RESAMPLE_PRE_PADDINGS = 1704,
    MCDNN_ATTR_RESAMPLE_STRIDES = 1705,
    MCDNN_ATTR_RESAMPLE_WINDOW_DIMS = 1706,
    MCDNN_ATTR_RESAMPLE_NAN_PROPAGATION = 1707,
    MCDNN_ATTR_RESAMPLE_PADDING_MODE = 1708,
    MCDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC = 1710,
    MCDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC = 1711,
    MCDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC = 1712,
    MCDNN_ATTR_OPERATION_RESAMPLE_FWD_ALPHA = 1713,
    MCDNN_ATTR_OPERATION_RESAMPLE_FWD_BETA = 1714,
    MCDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC = 1716,
    MCDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC = 1720,
    MCDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC = 1721,
    MCDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC = 1722,
    MCDNN_ATTR_OPERATION_RESAMPLE_BWD_ALPHA = 1723,
    MCDNN_ATTR_OPERATION_RESAMPLE_BWD_BETA = 1724,
    MCDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC = 1725,
    MCDNN_ATTR_OPERATION_RESAMPLE_BWD_XDESC = 1726,
    MCDNN_ATTR_OPERATION_RESAMPLE_BWD_YDESC = 1727,
    MCDNN_ATTR_OPERATION_CONCAT_AXIS = 1800,
    MCDNN_ATTR_OPERATION_CONCAT_INPUT_DESCS = 1801,
    MCDNN_ATTR_OPERATION_CONCAT_INPLACE_INDEX = 1802,
    MCDNN_ATTR_OPERATION_CONCAT_OUTPUT_DESC = 1803,
    MCDNN_ATTR_OPERATION_SIGNAL_MODE = 1900,
    MCDNN_ATTR_OPERATION_SIGNAL_FLAGDESC = 1901,
    MCDNN_ATTR_OPERATION_SIGNAL_VALUE = 1902,
    MCDNN_ATTR_OPERATION_SIGNAL_XDESC = 1903,
    MCDNN_ATTR_OPERATION_SIGNAL_YDESC = 1904,
    MCDNN_ATTR_OPERATION_NORM_FWD_MODE = 2000,
    MCDNN_ATTR_OPERATION_NORM_FWD_PHASE = 2001,
    MCDNN_ATTR_OPERATION_NORM_FWD_XDESC = 2002,
    MCDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC = 2003,
    MCDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC = 2004,
    MCDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC = 2005,
    MCDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC = 2006,
    MCDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC = 2007,
    MCDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC = 2008,
    MCDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC = 2009,
    MCDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC = 2010,
    MCDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC = 2011,
    MCDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC = 2012,
    MCDNN_ATTR_OPERATION_NORM_FWD_YDESC = 2013,
    MCDNN_ATTR_OPERATION_NORM_FWD_PEER_STAT_DESCS = 2014,
    MCDNN_ATTR_OPERATION_NORM_BWD_MODE = 2100,
    MCDNN_ATTR_OPERATION_NORM_BWD_XDESC = 2101,
    MCDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC = 2102,
    MCDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC = 2103,
    MCDNN_ATTR_OPERATION_NORM_BWD_DYDESC = 2104,
    MCDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC = 2105,
    MCDNN_ATTR_OPERATION_NORM_BWD_EPSILON_DESC = 2106,
    MCDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC = 2107,
    MCDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC = 2108,
    MCDNN_ATTR_OPERATION_NORM_BWD_DXDESC = 2109,
    MCDNN_ATTR_OPERATION_NORM_BWD_PEER_STAT_DESCS = 2110,
    MCDNN_ATTR_OPERATION_RESHAPE_XDESC = 2200,
    MCDNN_ATTR_OPERATION_RESHAPE_YDESC = 2201,
    MCDNN_ATTR_RNG_DISTRIBUTION = 2300,
    MCDNN_ATTR_RNG_NORMAL_DIST_MEAN = 2301,
    MCDNN_ATTR_RNG_NORMAL_DIST_STANDARD_DEVIATION = 2302,
    MCDNN_ATTR_RNG_UNIFORM_DIST_MAXIMUM = 2303,
    MCDNN_ATTR_RNG_UNIFORM_DIST_MINIMUM = 2304,
    MCDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY = 2305,
    MCDNN_ATTR_OPERATION_RNG_YDESC = 2310,
    MCDNN_ATTR_OPERATION_RNG_SEED = 2311,
    MCDNN_ATTR_OPERATION_RNG_DESC = 2312,
    MCDNN_ATTR_OPERATION_RNG_OFFSET_DESC = 2313
} mcdnnBackendAttributeName_t;

/* What an element of an attribute is. */
typedef enum {
    MCDNN_TYPE_HANDLE = 0,
    MCDNN_TYPE_DATA_TYPE = 1,
    MCDNN_TYPE_BOOLEAN = 2,
    MCDNN_TYPE_INT64 = 3,
    MCDNN_TYPE_FLOAT = 4,
    MCDNN_TYPE_DOUBLE = 5,
    MCDNN_TYPE_VOID_PTR = 6,
    MCDNN_TYPE_CONVOLUTION_MODE = 7,
    MCDNN_TYPE_HEUR_MODE = 8,
    MCDNN_TYPE_KNOB_TYPE = 9,
    MCDNN_TYPE_NAN_PROPOGATION = 10,
    MCDNN_TYPE_NUMERICAL_NOTE = 11,
    MCDNN_TYPE_LAYOUT_TYPE = 12,
    MCDNN_TYPE_ATTRIB_NAME = 13,
    MCDNN_TYPE_POINTWISE_MODE = 14,
    MCDNN_TYPE_BACKEND_DESCRIPTOR = 15,
    MCDNN_TYPE_GENSTATS_MODE = 16,
    MCDNN_TYPE_BN_FINALIZE_STATS_MODE = 17,
    MCDNN_TYPE_REDUCTION_OPERATOR_TYPE = 18,
    MCDNN_TYPE_BEHAVIOR_NOTE = 19,
    MCDNN_TYPE_TENSOR_REORDERING_MODE = 20,
    MCDNN_TYPE_RESAMPLE_MODE = 21,
    MCDNN_TYPE_PADDING_MODE = 22,
    MCDNN_TYPE_INT32 = 23,
    MCDNN_TYPE_CHAR = 24,
    MCDNN_TYPE_SIGNAL_MODE = 25,
    MCDNN_TYPE_FRACTION = 26,
    MCDNN_TYPE_NORM_MODE = 27,
    MCDNN_TYPE_NORM_FWD_PHASE = 28,
    MCDNN_TYPE_RNG_DISTRIBUTION = 29
} mcdnnBackendAttributeType_t;

typedef void *mcdnnBackendDescriptor_t;

typedef struct mcdnnFractionStruct {
    int64_t numerator;
    int64_t denominator;
} mcdnnFraction_t;

/* Makes a descriptor of a kind (8.2.1.1). */
mcdnnStatus_t mcdnnBackendCreateDescriptor(
    mcdnnBackendDescriptorType_t descriptorType,
    mcdnnBackendDescriptor_t *descriptor);

/* Destroys a descriptor (8.2.1.2). Those that it was set in keep what it says. */
mcdnnStatus_t mcdnnBackendDestroyDescriptor(mcdnnBackendDescriptor_t descriptor);

/* Empties a descriptor (8.2.1.6). */
mcdnnStatus_t mcdnnBackendInitialize(
    mcdnnBackendDescriptor_t descriptor,
    mcdnnBackendDescriptorType_t descriptorType,
    size_t sizeInBytes);

/* Sets an attribute (8.2.1.7). Other descriptors are looked at when this one is finalized. */
mcdnnStatus_t mcdnnBackendSetAttribute(
    mcdnnBackendDescriptor_t descriptor,
    mcdnnBackendAttributeName_t attributeName,
    mcdnnBackendAttributeType_t attributeType,
    int64_t elementCount,
    const void *arrayOfElements);

/* An attribute of a finalized descriptor (8.2.1.5): the number of its elements, and as many of
 * them as are asked for. Descriptors are written to those that the array holds. */
mcdnnStatus_t mcdnnBackendGetAttribute(
    mcdnnBackendDescriptor_t descriptor,
    mcdnnBackendAttributeName_t attributeName,
    mcdnnBackendAttributeType_t attributeType,
    int64_t requestedElementCount,
    int64_t *elementCount,
    void *arrayOfElements);

/* Checks a descriptor, and makes of it what it describes (8.2.1.4). */
mcdnnStatus_t mcdnnBackendFinalize(mcdnnBackendDescriptor_t descriptor);

/* Queues a plan with the tensors of a variant pack on the handle's stream (8.2.1.3). */
mcdnnStatus_t mcdnnBackendExecute(
    mcdnnHandle_t handle,
    mcdnnBackendDescriptor_t executionPlan,
    mcdnnBackendDescriptor_t variantPack);

/* CTC losses
 * ========== */

typedef struct mcdnnCTCLossDescriptorStruct *mcdnnCTCLossDescriptor_t;

/* The algorithm of a CTC loss. */
typedef enum {
    MCDNN_CTC_LOSS_ALGO_DETERMINISTIC = 0,
    MCDNN_CTC_LOSS_ALGO_NON_DETERMINISTIC = 1
} mcdnnCTCLossAlgo_t;

/* Whether probabilities are normalised first. */
typedef enum {
    MCDNN_LOSS_NORMALIZATION_NONE = 0,
    MCDNN_LOSS_NORMALIZATION_SOFTMAX = 1
} mcdnnLossNormalizationMode_t;

/* Makes a CTC loss descriptor. */
mcdnnStatus_t mcdnnCreateCTCLossDescriptor(mcdnnCTCLossDescriptor_t *ctcLossDesc);

/* Destroys a CTC loss descriptor; NULL is none. */
mcdnnStatus_t mcdnnDestroyCTCLossDescriptor(mcdnnCTCLossDescriptor_t ctcLossDesc);

/* Sets the type of the computation: MCDNN_DATA_FLOAT. */
mcdnnStatus_t mcdnnSetCTCLossDescriptor(
    mcdnnCTCLossDescriptor_t ctcLossDesc,
    mcdnnDataType_t compType);

/* As mcdnnSetCTCLossDescriptor, with what is done to probabilities and to NaN in gradients. */
mcdnnStatus_t mcdnnSetCTCLossDescriptorEx(
    mcdnnCTCLossDescriptor_t ctcLossDesc,
    mcdnnDataType_t compType,
    mcdnnLossNormalizationMode_t normMode,
    mcdnnNanPropagation_t gradMode);

/* As mcdnnSetCTCLossDescriptorEx, with the longest label of a sequence. */
mcdnnStatus_t mcdnnSetCTCLossDescriptor_v8(
    mcdnnCTCLossDescriptor_t ctcLossDesc,
    mcdnnDataType_t compType,
    mcdnnLossNormalizationMode_t normMode,
    mcdnnNanPropagation_t gradMode,
    int maxLabelLength);

/* The type of the computation. */
mcdnnStatus_t mcdnnGetCTCLossDescriptor(
    mcdnnCTCLossDescriptor_t ctcLossDesc,
    mcdnnDataType_t *compType);

/* What mcdnnSetCTCLossDescriptorEx has set. */
mcdnnStatus_t mcdnnGetCTCLossDescriptorEx(
    mcdnnCTCLossDescriptor_t ctcLossDesc,
    mcdnnDataType_t *compType,
    mcdnnLossNormalizationMode_t *normMode,
    mcdnnNanPropagation_t *gradMode);

/* What mcdnnSetCTCLossDescriptor_v8 has set. */
mcdnnStatus_t mcdnnGetCTCLossDescriptor_v8(
    mcdnnCTCLossDescriptor_t ctcLossDesc,
    mcdnnDataType_t *compType,
    mcdnnLossNormalizationMode_t *normMode,
    mcdnnNanPropagation_t *gradMode,
    int *maxLabelLength);

/* Bytes of the workspace of a loss; nothing is compiled. Without gradientsDesc it is that of
 * costs alone. */
mcdnnStatus_t mcdnnGetCTCLossWorkspaceSize(
    mcdnnHandle_t handle,
    mcdnnTensorDescriptor_t probsDesc,
    mcdnnTensorDescriptor_t gradientsDesc,
    const int labels[],
    const int labelLengths[],
    const int inputLengths[],
    mcdnnCTCLossAlgo_t algo,
    mcdnnCTCLossDescriptor_t ctcLossDesc,
    size_t *sizeInBytes);

/* As mcdnnGetCTCLossWorkspaceSize, for labels in device memory. */
mcdnnStatus_t mcdnnGetCTCLossWorkspaceSize_v8(
    mcdnnHandle_t handle,
    mcdnnCTCLossAlgo_t algo,
    mcdnnCTCLossDescriptor_t ctcLossDesc,
    mcdnnTensorDescriptor_t probsDesc,
    mcdnnTensorDescriptor_t gradientsDesc,
    size_t *sizeInBytes);

/* The costs of sequences and their gradients, queued on the handle's stream. Labels, one
 * sequence's behind the other's, and lengths are in host memory and are copied; costs are in
 * device memory. */
mcdnnStatus_t mcdnnCTCLoss(
    mcdnnHandle_t handle,
    mcdnnTensorDescriptor_t probsDesc,
    const void *probs,
    const int hostLabels[],
    const int hostLabelLengths[],
    const int hostInputLengths[],
    void *costs,
    mcdnnTensorDescriptor_t gradientsDesc,
    void *gradients,
    mcdnnCTCLossAlgo_t algo,
    mcdnnCTCLossDescriptor_t ctcLossDesc,
    void *workspace,
    size_t workSpaceSizeInBytes);

/* As mcdnnCTCLoss, with labels and lengths in device memory. */
mcdnnStatus_t mcdnnCTCLoss_v8(
    mcdnnHandle_t handle,
    mcdnnCTCLossAlgo_t algo,
    mcdnnCTCLossDescriptor_t ctcLossDesc,
    mcdnnTensorDescriptor_t probsDesc,
    const void *probs,
    const int labels[],
    const int labelLengths[],
    const int inputLengths[],
    void *costs,
    mcdnnTensorDescriptor_t gradientsDesc,
    void *gradients,
    size_t workSpaceSizeInBytes,
    void *workspace);

/* Algorithms, of the old interface
 * ================================ */

typedef struct mcdnnAlgorithmDescriptorStruct *mcdnnAlgorithmDescriptor_t;
typedef struct mcdnnAlgorithmPerformanceStruct *mcdnnAlgorithmPerformance_t;

typedef struct mcdnnAlgorithmUnionStruct {
    union Algorithm {
        mcdnnRNNAlgo_t RNNAlgo;
        mcdnnCTCLossAlgo_t CTCLossAlgo;
    } algo;
} mcdnnAlgorithm_t;

/* Makes an algorithm descriptor. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnCreateAlgorithmDescriptor(mcdnnAlgorithmDescriptor_t *algoDesc);

/* Sets the algorithm. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnSetAlgorithmDescriptor(
    mcdnnAlgorithmDescriptor_t algoDesc,
    mcdnnAlgorithm_t algorithm);

/* The algorithm. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnGetAlgorithmDescriptor(
    mcdnnAlgorithmDescriptor_t algoDesc,
    mcdnnAlgorithm_t *algorithm);

/* Sets the algorithm to that of another descriptor. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnCopyAlgorithmDescriptor(
    mcdnnAlgorithmDescriptor_t src,
    mcdnnAlgorithmDescriptor_t dest);

/* Destroys an algorithm descriptor; NULL is none. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnDestroyAlgorithmDescriptor(mcdnnAlgorithmDescriptor_t algoDesc);

/* Makes so many performances. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnCreateAlgorithmPerformance(
    mcdnnAlgorithmPerformance_t *algoPerf,
    int numberToCreate);

/* Sets what was measured: status, milliseconds, and bytes of memory. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnSetAlgorithmPerformance(
    mcdnnAlgorithmPerformance_t algoPerf,
    mcdnnAlgorithmDescriptor_t algoDesc,
    mcdnnStatus_t status,
    float time,
    size_t memory);

/* What was measured. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnGetAlgorithmPerformance(
    mcdnnAlgorithmPerformance_t algoPerf,
    mcdnnAlgorithmDescriptor_t *algoDesc,
    mcdnnStatus_t *status,
    float *time,
    size_t *memory);

/* Destroys so many performances; those that are NULL are none. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnDestroyAlgorithmPerformance(
    const mcdnnAlgorithmPerformance_t algoPerf[],
    int numberToDestroy);

/* Recurrent networks, of the old interface
 * ======================================== */

typedef struct mcdnnPersistentRNNPlanStruct *mcdnnPersistentRNNPlan_t;

/* Describes a network but for the size of its input, which it learns when it is used. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnSetRNNDescriptor_v6(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    int hiddenSize,
    int numLayers,
    mcdnnDropoutDescriptor_t dropoutDesc,
    mcdnnRNNInputMode_t inputMode,
    mcdnnDirectionMode_t direction,
    mcdnnRNNMode_t cellMode,
    mcdnnRNNAlgo_t algo,
    mcdnnDataType_t mathPrec);

/* What mcdnnSetRNNDescriptor_v6 has set. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnGetRNNDescriptor_v6(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    int *hiddenSize,
    int *numLayers,
    mcdnnDropoutDescriptor_t *dropoutDesc,
    mcdnnRNNInputMode_t *inputMode,
    mcdnnDirectionMode_t *direction,
    mcdnnRNNMode_t *cellMode,
    mcdnnRNNAlgo_t *algo,
    mcdnnDataType_t *mathPrec);

/* Sets the biases. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnSetRNNBiasMode(
    mcdnnRNNDescriptor_t rnnDesc,
    mcdnnRNNBiasMode_t biasMode);

/* The biases. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnGetRNNBiasMode(
    mcdnnRNNDescriptor_t rnnDesc,
    mcdnnRNNBiasMode_t *biasMode);

/* Sets whether tensor cores may be used. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnSetRNNMatrixMathType(
    mcdnnRNNDescriptor_t rnnDesc,
    mcdnnMathType_t mType);

/* Whether tensor cores may be used. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnGetRNNMatrixMathType(
    mcdnnRNNDescriptor_t rnnDesc,
    mcdnnMathType_t *mType);

/* Sets whether inputs and outputs may be padded, of type mcdnnRNNPaddingMode_t. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnSetRNNPaddingMode(
    mcdnnRNNDescriptor_t rnnDesc,
    unsigned paddingMode);

/* Whether inputs and outputs may be padded, of type mcdnnRNNPaddingMode_t. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnGetRNNPaddingMode(
    mcdnnRNNDescriptor_t rnnDesc,
    unsigned *paddingMode);

/* Sets the size of the projected h; outProjSize must be 0. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnSetRNNProjectionLayers(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    int recProjSize,
    int outProjSize);

/* The size of the projected h, which without a projection is hiddenSize; outProjSize is 0. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnGetRNNProjectionLayers(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    int *recProjSize,
    int *outProjSize);

/* As mcdnnRNNSetClip_v8. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnRNNSetClip(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    mcdnnRNNClipMode_t clipMode,
    mcdnnNanPropagation_t clipNanOpt,
    double lclip,
    double rclip);

/* As mcdnnRNNGetClip_v8. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnRNNGetClip(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    mcdnnRNNClipMode_t *clipMode,
    mcdnnNanPropagation_t *clipNanOpt,
    double *lclip,
    double *rclip);

/* Sets the algorithm. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnSetRNNAlgorithmDescriptor(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    mcdnnAlgorithmDescriptor_t algoDesc);

/* The number of algorithms of the forward pass. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnGetRNNForwardInferenceAlgorithmMaxCount(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    int *count);

/* The number of algorithms of the backward pass of the weights. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnGetRNNBackwardWeightsAlgorithmMaxCount(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    int *count);

/* Plans a network of the dynamic algorithm for a number of sequences. Its kernels are built by
 * the first call, as its input is not known. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnCreatePersistentRNNPlan(
    mcdnnRNNDescriptor_t rnnDesc,
    int minibatch,
    mcdnnDataType_t dataType,
    mcdnnPersistentRNNPlan_t *plan);

/* Gives a network a plan. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnSetPersistentRNNPlan(
    mcdnnRNNDescriptor_t rnnDesc,
    mcdnnPersistentRNNPlan_t plan);

/* Destroys a plan; NULL is none. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnDestroyPersistentRNNPlan(mcdnnPersistentRNNPlan_t plan);

/* Bytes of the weights of a network. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnGetRNNParamsSize(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    mcdnnTensorDescriptor_t xDesc,
    size_t *sizeInBytes,
    mcdnnDataType_t dataType);

/* Bytes of the workspace for sequences of so many steps. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnGetRNNWorkspaceSize(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    int seqLength,
    const mcdnnTensorDescriptor_t xDesc[],
    size_t *sizeInBytes);

/* Bytes of the reserve space for sequences of so many steps. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnGetRNNTrainingReserveSize(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    int seqLength,
    const mcdnnTensorDescriptor_t xDesc[],
    size_t *sizeInBytes);

/* Shape {1, rows, columns} and address of a weight matrix; of one that is absent, no
 * dimensions and NULL. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnGetRNNLinLayerMatrixParams(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    int pseudoLayer,
    mcdnnTensorDescriptor_t xDesc,
    mcdnnFilterDescriptor_t wDesc,
    const void *w,
    int linLayerID,
    mcdnnFilterDescriptor_t linLayerMatDesc,
    void **linLayerMat);

/* Shape {1, rows, 1} and address of a bias; of one that is absent, no dimensions and NULL. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnGetRNNLinLayerBiasParams(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    int pseudoLayer,
    mcdnnTensorDescriptor_t xDesc,
    mcdnnFilterDescriptor_t wDesc,
    const void *w,
    int linLayerID,
    mcdnnFilterDescriptor_t linLayerBiasDesc,
    void **linLayerBias);

/* The forward pass in inference, with a descriptor for each step. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnRNNForwardInference(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    int seqLength,
    const mcdnnTensorDescriptor_t xDesc[],
    const void *x,
    mcdnnTensorDescriptor_t hxDesc,
    const void *hx,
    mcdnnTensorDescriptor_t cxDesc,
    const void *cx,
    mcdnnFilterDescriptor_t wDesc,
    const void *w,
    const mcdnnTensorDescriptor_t yDesc[],
    void *y,
    mcdnnTensorDescriptor_t hyDesc,
    void *hy,
    mcdnnTensorDescriptor_t cyDesc,
    void *cy,
    void *workSpace,
    size_t workSpaceSizeInBytes);

/* The forward pass in inference. Keys, queries and attention are not used and may be NULL. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnRNNForwardInferenceEx(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    mcdnnRNNDataDescriptor_t xDesc,
    const void *x,
    mcdnnTensorDescriptor_t hxDesc,
    const void *hx,
    mcdnnTensorDescriptor_t cxDesc,
    const void *cx,
    mcdnnFilterDescriptor_t wDesc,
    const void *w,
    mcdnnRNNDataDescriptor_t yDesc,
    void *y,
    mcdnnTensorDescriptor_t hyDesc,
    void *hy,
    mcdnnTensorDescriptor_t cyDesc,
    void *cy,
    mcdnnRNNDataDescriptor_t kDesc,
    const void *keys,
    mcdnnRNNDataDescriptor_t cDesc,
    void *cAttn,
    mcdnnRNNDataDescriptor_t iDesc,
    void *iAttn,
    mcdnnRNNDataDescriptor_t qDesc,
    void *queries,
    void *workSpace,
    size_t workSpaceSizeInBytes);

/* The forward pass in training, with a descriptor for each step. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnRNNForwardTraining(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    int seqLength,
    const mcdnnTensorDescriptor_t xDesc[],
    const void *x,
    mcdnnTensorDescriptor_t hxDesc,
    const void *hx,
    mcdnnTensorDescriptor_t cxDesc,
    const void *cx,
    mcdnnFilterDescriptor_t wDesc,
    const void *w,
    const mcdnnTensorDescriptor_t yDesc[],
    void *y,
    mcdnnTensorDescriptor_t hyDesc,
    void *hy,
    mcdnnTensorDescriptor_t cyDesc,
    void *cy,
    void *workSpace,
    size_t workSpaceSizeInBytes,
    void *reserveSpace,
    size_t reserveSpaceSizeInBytes);

/* The forward pass in training. Keys, queries and attention are not used and may be NULL. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnRNNForwardTrainingEx(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    mcdnnRNNDataDescriptor_t xDesc,
    const void *x,
    mcdnnTensorDescriptor_t hxDesc,
    const void *hx,
    mcdnnTensorDescriptor_t cxDesc,
    const void *cx,
    mcdnnFilterDescriptor_t wDesc,
    const void *w,
    mcdnnRNNDataDescriptor_t yDesc,
    void *y,
    mcdnnTensorDescriptor_t hyDesc,
    void *hy,
    mcdnnTensorDescriptor_t cyDesc,
    void *cy,
    mcdnnRNNDataDescriptor_t kDesc,
    const void *keys,
    mcdnnRNNDataDescriptor_t cDesc,
    void *cAttn,
    mcdnnRNNDataDescriptor_t iDesc,
    void *iAttn,
    mcdnnRNNDataDescriptor_t qDesc,
    void *queries,
    void *workSpace,
    size_t workSpaceSizeInBytes,
    void *reserveSpace,
    size_t reserveSpaceSizeInBytes);

/* The algorithms of the forward pass: the one of the network. Nothing is run. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnFindRNNForwardInferenceAlgorithmEx(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    int seqLength,
    const mcdnnTensorDescriptor_t xDesc[],
    const void *x,
    mcdnnTensorDescriptor_t hxDesc,
    const void *hx,
    mcdnnTensorDescriptor_t cxDesc,
    const void *cx,
    mcdnnFilterDescriptor_t wDesc,
    const void *w,
    const mcdnnTensorDescriptor_t yDesc[],
    void *y,
    mcdnnTensorDescriptor_t hyDesc,
    void *hy,
    mcdnnTensorDescriptor_t cyDesc,
    void *cy,
    float findIntensity,
    int requestedAlgoCount,
    int *returnedAlgoCount,
    mcdnnAlgorithmPerformance_t *perfResults,
    void *workspace,
    size_t workSpaceSizeInBytes);

/* The backward pass of the data, with a descriptor for each step. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnRNNBackwardData(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    int seqLength,
    const mcdnnTensorDescriptor_t yDesc[],
    const void *y,
    const mcdnnTensorDescriptor_t dyDesc[],
    const void *dy,
    mcdnnTensorDescriptor_t dhyDesc,
    const void *dhy,
    mcdnnTensorDescriptor_t dcyDesc,
    const void *dcy,
    mcdnnFilterDescriptor_t wDesc,
    const void *w,
    mcdnnTensorDescriptor_t hxDesc,
    const void *hx,
    mcdnnTensorDescriptor_t cxDesc,
    const void *cx,
    const mcdnnTensorDescriptor_t dxDesc[],
    void *dx,
    mcdnnTensorDescriptor_t dhxDesc,
    void *dhx,
    mcdnnTensorDescriptor_t dcxDesc,
    void *dcx,
    void *workSpace,
    size_t workSpaceSizeInBytes,
    void *reserveSpace,
    size_t reserveSpaceSizeInBytes);

/* The backward pass of the data. Keys and attention are not used and may be NULL. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnRNNBackwardDataEx(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    mcdnnRNNDataDescriptor_t yDesc,
    const void *y,
    mcdnnRNNDataDescriptor_t dyDesc,
    const void *dy,
    mcdnnRNNDataDescriptor_t dcDesc,
    const void *dcAttn,
    mcdnnTensorDescriptor_t dhyDesc,
    const void *dhy,
    mcdnnTensorDescriptor_t dcyDesc,
    const void *dcy,
    mcdnnFilterDescriptor_t wDesc,
    const void *w,
    mcdnnTensorDescriptor_t hxDesc,
    const void *hx,
    mcdnnTensorDescriptor_t cxDesc,
    const void *cx,
    mcdnnRNNDataDescriptor_t dxDesc,
    void *dx,
    mcdnnTensorDescriptor_t dhxDesc,
    void *dhx,
    mcdnnTensorDescriptor_t dcxDesc,
    void *dcx,
    mcdnnRNNDataDescriptor_t dkDesc,
    void *dkeys,
    void *workSpace,
    size_t workSpaceSizeInBytes,
    void *reserveSpace,
    size_t reserveSpaceSizeInBytes);

/* The backward pass of the weights, with a descriptor for each step: adds to those in memory. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnRNNBackwardWeights(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    int seqLength,
    const mcdnnTensorDescriptor_t xDesc[],
    const void *x,
    mcdnnTensorDescriptor_t hxDesc,
    const void *hx,
    const mcdnnTensorDescriptor_t yDesc[],
    const void *y,
    const void *workSpace,
    size_t workSpaceSizeInBytes,
    mcdnnFilterDescriptor_t dwDesc,
    void *dw,
    const void *reserveSpace,
    size_t reserveSpaceSizeInBytes);

/* The backward pass of the weights: adds to those in memory. */
MCDNN_DEPRECATED mcdnnStatus_t mcdnnRNNBackwardWeightsEx(
    mcdnnHandle_t handle,
    mcdnnRNNDescriptor_t rnnDesc,
    mcdnnRNNDataDescriptor_t xDesc,
    const void *x,
    mcdnnTensorDescriptor_t hxDesc,
    const void *hx,
    mcdnnRNNDataDescriptor_t yDesc,
    const void *y,
    void *workSpace,
    size_t workSpaceSizeInBytes,
    mcdnnFilterDescriptor_t dwDesc,
    void *dw,
    void *reserveSpace,
    size_t reserveSpaceSizeInBytes);

#ifdef __cplusplus
}
#endif

#endif
