//! Enumerations of the backend (section 8.1.1).

use crate::declare::enumeration;

enumeration! {
    /// What an element of an attribute is.
    mcdnnBackendAttributeType_t AttributeType "MCDNN_TYPE_" {
        HANDLE = 0, DATA_TYPE = 1, BOOLEAN = 2, INT64 = 3, FLOAT = 4, DOUBLE = 5, VOID_PTR = 6,
        CONVOLUTION_MODE = 7, HEUR_MODE = 8, KNOB_TYPE = 9, NAN_PROPOGATION = 10,
        NUMERICAL_NOTE = 11, LAYOUT_TYPE = 12, ATTRIB_NAME = 13, POINTWISE_MODE = 14,
        BACKEND_DESCRIPTOR = 15, GENSTATS_MODE = 16, BN_FINALIZE_STATS_MODE = 17,
        REDUCTION_OPERATOR_TYPE = 18, BEHAVIOR_NOTE = 19, TENSOR_REORDERING_MODE = 20,
        RESAMPLE_MODE = 21, PADDING_MODE = 22, INT32 = 23, CHAR = 24, SIGNAL_MODE = 25,
        FRACTION = 26, NORM_MODE = 27, NORM_FWD_PHASE = 28, RNG_DISTRIBUTION = 29,
    }
}

enumeration! {
    /// Notes of what an engine does.
    mcdnnBackendBehaviorNote_t BehaviorNote "MCDNN_BEHAVIOR_NOTE_" {
        RUNTIME_COMPILATION = 0, REQUIRES_FILTER_INT8x32_REORDER = 1,
        REQUIRES_BIAS_INT8x32_REORDER = 2, TYPE_COUNT = 3,
    }
}

enumeration! {
    /// What a descriptor describes.
    mcdnnBackendDescriptorType_t DescriptorType "MCDNN_BACKEND_" {
        POINTWISE_DESCRIPTOR = 0, CONVOLUTION_DESCRIPTOR = 1, ENGINE_DESCRIPTOR = 2,
        ENGINECFG_DESCRIPTOR = 3, ENGINEHEUR_DESCRIPTOR = 4, EXECUTION_PLAN_DESCRIPTOR = 5,
        INTERMEDIATE_INFO_DESCRIPTOR = 6, KNOB_CHOICE_DESCRIPTOR = 7, KNOB_INFO_DESCRIPTOR = 8,
        LAYOUT_INFO_DESCRIPTOR = 9, OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR = 10,
        OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR = 11,
        OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR = 12, OPERATION_POINTWISE_DESCRIPTOR = 13,
        OPERATION_GEN_STATS_DESCRIPTOR = 14, OPERATIONGRAPH_DESCRIPTOR = 15,
        VARIANT_PACK_DESCRIPTOR = 16, TENSOR_DESCRIPTOR = 17, MATMUL_DESCRIPTOR = 18,
        OPERATION_MATMUL_DESCRIPTOR = 19, OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR = 20,
        REDUCTION_DESCRIPTOR = 21, OPERATION_REDUCTION_DESCRIPTOR = 22,
        OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR = 23, RESAMPLE_DESCRIPTOR = 24,
        OPERATION_RESAMPLE_FWD_DESCRIPTOR = 25, OPERATION_RESAMPLE_BWD_DESCRIPTOR = 26,
        OPERATION_CONCAT_DESCRIPTOR = 27, OPERATION_SIGNAL_DESCRIPTOR = 28,
        OPERATION_NORM_FORWARD_DESCRIPTOR = 29, OPERATION_NORM_BACKWARD_DESCRIPTOR = 30,
        OPERATION_RESHAPE_DESCRIPTOR = 31, RNG_DESCRIPTOR = 32, OPERATION_RNG_DESCRIPTOR = 33,
    }
}

enumeration! {
    /// How engines are chosen.
    mcdnnBackendHeurMode_t HeurMode "MCDNN_HEUR_MODE_" {
        INSTANT = 0, B = 1, FALLBACK = 2, A = 3,
    }
}

enumeration! {
    /// A knob of an engine.
    mcdnnBackendKnobType_t KnobType "MCDNN_KNOB_TYPE_" {
        SPLIT_K = 0, SWIZZLE = 1, TILE_SIZE = 2, USE_TEX = 3, EDGE = 4, KBLOCK = 5, LDGA = 6,
        LDGB = 7, CHUNK_K = 8, SPLIT_H = 9, WINO_TILE = 10, MULTIPLY = 11, SPLIT_K_BUF = 12,
        TILEK = 13, STAGES = 14, REDUCTION_MODE = 15, CTA_SPLIT_K_MODE = 16, SPLIT_K_SLC = 17,
        IDX_MODE = 18, SLICED = 19, SPLIT_RS = 20, SINGLEBUFFER = 21, LDGC = 22, SPECFILT = 23,
        KERNEL_CFG = 24, WORKSPACE = 25, COUNTS = 26,
    }
}

enumeration! {
    /// The layout that an engine prefers.
    mcdnnBackendLayoutType_t LayoutType "MCDNN_LAYOUT_TYPE_" {
        PREFERRED_NCHW = 0, PREFERRED_NHWC = 1, PREFERRED_PAD4CK = 2, PREFERRED_PAD8CK = 3,
        COUNT = 4,
    }
}

enumeration! {
    /// Whether a norm keeps what its gradients need.
    mcdnnBackendNormFwdPhase_t NormFwdPhase "MCDNN_NORM_FWD_" {
        INFERENCE = 0, TRAINING = 1,
    }
}

enumeration! {
    /// What a norm takes the mean of.
    mcdnnBackendNormMode_t NormMode "MCDNN_" {
        LAYER_NORM = 0, INSTANCE_NORM = 1, BATCH_NORM = 2, GROUP_NORM = 3,
    }
}

enumeration! {
    /// Notes of how an engine computes.
    mcdnnBackendNumericalNote_t NumericalNote "MCDNN_NUMERICAL_NOTE_" {
        TENSOR_CORE = 0, DOWN_CONVERT_INPUTS = 1, REDUCED_PRECISION_REDUCTION = 2, FFT = 3,
        NONDETERMINISTIC = 4, WINOGRAD = 5, WINOGRAD_TILE_4x4 = 6, WINOGRAD_TILE_6x6 = 7,
        WINOGRAD_TILE_13x13 = 8, TYPE_COUNT = 9,
    }
}

enumeration! {
    /// How elements of a tensor are reordered.
    mcdnnBackendTensorReordering_t TensorReordering "MCDNN_TENSOR_REORDERING_" {
        NONE = 0, INT8x32 = 1, F16x16 = 2,
    }
}

enumeration! {
    /// What statistics of a batch norm are computed from.
    mcdnnBnFinalizeStatsMode_t BnFinalizeStatsMode "MCDNN_BN_FINALIZE_STATISTICS_" {
        TRAINING = 0, INFERENCE = 1,
    }
}

enumeration! {
    /// What is beside a resampled tensor.
    mcdnnPaddingMode_t PaddingMode "MCDNN_" {
        ZERO_PAD = 0, NEG_INF_PAD = 1, EDGE_VAL_PAD = 2,
    }
}

enumeration! {
    /// How a tensor is resampled.
    mcdnnResampleMode_t ResampleMode "MCDNN_RESAMPLE_" {
        NEAREST = 0, BILINEAR = 1, AVGPOOL = 2, AVGPOOL_INCLUDE_PADDING = 2,
        AVGPOOL_EXCLUDE_PADDING = 4, MAXPOOL = 3,
    }
}

enumeration! {
    /// Statistics of a tensor.
    mcdnnGenStatsMode_t GenStatsMode "MCDNN_GENSTATS_" {
        SUM_SQSUM = 0,
    }
}

enumeration! {
    /// How random numbers are distributed.
    mcdnnRngDistribution_t RngDistribution "MCDNN_RNG_DISTRIBUTION_" {
        BERNOULLI = 0, UNIFORM = 1, NORMAL = 2,
    }
}

enumeration! {
    /// Whether a flag is set or waited for.
    mcdnnSignalMode_t SignalMode "MCDNN_SIGNAL_" {
        SET = 0, WAIT = 1,
    }
}

enumeration! {
    /// Whether a filter is turned around.
    mcdnnConvolutionMode_t ConvolutionMode "MCDNN_" {
        CONVOLUTION = 0, CROSS_CORRELATION = 1,
    }
}

enumeration! {
    /// How elements are reduced.
    mcdnnReduceTensorOp_t ReduceTensorOp "MCDNN_REDUCE_TENSOR_" {
        ADD = 0, MUL = 1, MIN = 2, MAX = 3, AMAX = 4, AVG = 5, NORM1 = 6, NORM2 = 7,
        MUL_NO_ZEROS = 8,
    }
}

enumeration! {
    /// A pointwise operation.
    mcdnnPointwiseMode_t PointwiseMode "MCDNN_POINTWISE_" {
        ADD = 0, MUL = 1, MIN = 2, MAX = 3, SQRT = 4, ADD_SQUARE = 5, DIV = 6, MOD = 7, POW = 8,
        SUB = 9, ABS = 10, CEIL = 11, COS = 12, EXP = 13, FLOOR = 14, LOG = 15, NEG = 16,
        RSQRT = 17, SIN = 18, TAN = 19, ERF = 20, IDENTITY = 21, RELU_FWD = 100, TANH_FWD = 101,
        SIGMOID_FWD = 102, ELU_FWD = 103, GELU_FWD = 104, SOFTPLUS_FWD = 105, SWISH_FWD = 106,
        GELU_APPROX_TANH_FWD = 107, RELU_BWD = 200, TANH_BWD = 201, SIGMOID_BWD = 202,
        ELU_BWD = 203, GELU_BWD = 204, SOFTPLUS_BWD = 205, SWISH_BWD = 206,
        GELU_APPROX_TANH_BWD = 207, CMP_EQ = 300, CMP_NEQ = 301, CMP_GT = 302, CMP_GE = 303,
        CMP_LT = 304, CMP_LE = 305, LOGICAL_AND = 400, LOGICAL_OR = 401, LOGICAL_NOT = 402,
        GEN_INDEX = 501, BINARY_SELECT = 601,
    }
}
