//! The attributes of each kind of descriptor: types, counts, and what is left out (section 8.2.2).

use crate::backend::names::AttributeName as N;
use crate::backend::values::{AttributeType as T, DescriptorType as D};

/// An attribute of a kind of descriptor.
#[derive(Clone, Copy)]
pub struct Attribute {
    /// Its name.
    pub name: N,
    /// What its elements may be.
    pub types: &'static [T],
    /// The most elements.
    pub most: i64,
    /// Whether it must be set.
    pub need: Need,
    /// What it is if it is not set.
    pub default: Default,
    /// The kinds of the descriptors that it refers to.
    pub of: &'static [D],
}

/// Whether an attribute must be set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// It must.
    Required,
    /// It need not.
    Optional,
    /// It cannot be set: the library does.
    ReadOnly,
    /// It has no meaning here: setting it is refused.
    Refused,
}

/// The value of an attribute that is not set.
#[derive(Clone, Copy, PartialEq)]
pub enum Default {
    /// None.
    Nothing,
    /// An integer or a number of an enumeration.
    Integer(i64),
    /// A float.
    Float(f64),
}

/// As many as a program has.
const MANY: i64 = 1 << 20;
/// The most dimensions of a tensor.
const DIMS: i64 = 8;
/// The most dimensions that are resampled.
const SPATIAL: i64 = 6;

const fn attribute(name: N, types: &'static [T], need: Need) -> Attribute {
    Attribute { name, types, most: 1, need, default: Default::Nothing, of: &[] }
}

const fn required(name: N, types: &'static [T]) -> Attribute {
    attribute(name, types, Need::Required)
}

const fn integer(name: N, types: &'static [T], default: i64) -> Attribute {
    let default = Default::Integer(default);
    Attribute { default, ..attribute(name, types, Need::Optional) }
}

const fn float(name: N, default: f64) -> Attribute {
    let default = Default::Float(default);
    Attribute { default, ..attribute(name, FLOATING, Need::Optional) }
}

const fn double(name: N, default: f64) -> Attribute {
    Attribute { types: &[T::DOUBLE], ..float(name, default) }
}

const fn read_only(name: N, types: &'static [T]) -> Attribute {
    attribute(name, types, Need::ReadOnly)
}

const fn refused(name: N, types: &'static [T]) -> Attribute {
    Attribute { most: MANY, ..attribute(name, types, Need::Refused) }
}

const fn descriptor(name: N, of: &'static [D]) -> Attribute {
    Attribute { of, ..required(name, &[T::BACKEND_DESCRIPTOR]) }
}

const fn tensor(name: N) -> Attribute {
    descriptor(name, &[D::TENSOR_DESCRIPTOR])
}

impl Attribute {
    const fn up_to(self, most: i64) -> Attribute {
        Attribute { most, ..self }
    }

    const fn optional(self) -> Attribute {
        Attribute { need: Need::Optional, ..self }
    }

    const fn read(self) -> Attribute {
        Attribute { need: Need::ReadOnly, ..self }
    }
}

const FLOATING: &[T] = &[T::FLOAT, T::DOUBLE];
const INT64: &[T] = &[T::INT64];
const WHOLE: &[T] = &[T::INT64, T::FRACTION];
const DATA_TYPE: &[T] = &[T::DATA_TYPE];
const NAN: &[T] = &[T::NAN_PROPOGATION];

/// The operations of a graph.
pub const OPERATIONS: &[D] = &[
    D::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
    D::OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
    D::OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
    D::OPERATION_POINTWISE_DESCRIPTOR,
    D::OPERATION_GEN_STATS_DESCRIPTOR,
    D::OPERATION_MATMUL_DESCRIPTOR,
    D::OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR,
    D::OPERATION_REDUCTION_DESCRIPTOR,
    D::OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR,
    D::OPERATION_RESAMPLE_FWD_DESCRIPTOR,
    D::OPERATION_RESAMPLE_BWD_DESCRIPTOR,
    D::OPERATION_CONCAT_DESCRIPTOR,
    D::OPERATION_SIGNAL_DESCRIPTOR,
    D::OPERATION_NORM_FORWARD_DESCRIPTOR,
    D::OPERATION_NORM_BACKWARD_DESCRIPTOR,
    D::OPERATION_RESHAPE_DESCRIPTOR,
    D::OPERATION_RNG_DESCRIPTOR,
];

/// The attributes of a kind of descriptor; `None` of one that cannot be made.
pub fn attributes(kind: D) -> Option<&'static [Attribute]> {
    Some(match kind {
        D::POINTWISE_DESCRIPTOR => POINTWISE,
        D::CONVOLUTION_DESCRIPTOR => CONVOLUTION,
        D::ENGINE_DESCRIPTOR => ENGINE,
        D::ENGINECFG_DESCRIPTOR => ENGINECFG,
        D::ENGINEHEUR_DESCRIPTOR => ENGINEHEUR,
        D::EXECUTION_PLAN_DESCRIPTOR => EXECUTION_PLAN,
        D::INTERMEDIATE_INFO_DESCRIPTOR => INTERMEDIATE_INFO,
        D::KNOB_CHOICE_DESCRIPTOR => KNOB_CHOICE,
        D::KNOB_INFO_DESCRIPTOR => KNOB_INFO,
        D::LAYOUT_INFO_DESCRIPTOR => LAYOUT_INFO,
        D::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR => CONVOLUTION_FORWARD,
        D::OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR => CONVOLUTION_BWD_FILTER,
        D::OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR => CONVOLUTION_BWD_DATA,
        D::OPERATION_POINTWISE_DESCRIPTOR => OPERATION_POINTWISE,
        D::OPERATION_GEN_STATS_DESCRIPTOR => GEN_STATS,
        D::OPERATIONGRAPH_DESCRIPTOR => OPERATIONGRAPH,
        D::VARIANT_PACK_DESCRIPTOR => VARIANT_PACK,
        D::TENSOR_DESCRIPTOR => TENSOR,
        D::MATMUL_DESCRIPTOR => MATMUL,
        D::OPERATION_MATMUL_DESCRIPTOR => OPERATION_MATMUL,
        D::OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR => BN_FINALIZE,
        D::REDUCTION_DESCRIPTOR => REDUCTION,
        D::OPERATION_REDUCTION_DESCRIPTOR => OPERATION_REDUCTION,
        D::OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR => BN_BWD_WEIGHTS,
        D::RESAMPLE_DESCRIPTOR => RESAMPLE,
        D::OPERATION_RESAMPLE_FWD_DESCRIPTOR => RESAMPLE_FWD,
        D::OPERATION_RESAMPLE_BWD_DESCRIPTOR => RESAMPLE_BWD,
        D::OPERATION_CONCAT_DESCRIPTOR => CONCAT,
        D::OPERATION_SIGNAL_DESCRIPTOR => SIGNAL,
        D::OPERATION_NORM_FORWARD_DESCRIPTOR => NORM_FORWARD,
        D::OPERATION_NORM_BACKWARD_DESCRIPTOR => NORM_BACKWARD,
        D::OPERATION_RESHAPE_DESCRIPTOR => RESHAPE,
        D::RNG_DESCRIPTOR => RNG,
        D::OPERATION_RNG_DESCRIPTOR => OPERATION_RNG,
        _ => return None,
    })
}

/// An attribute of a kind of descriptor.
pub fn find(kind: D, name: N) -> Option<&'static Attribute> {
    attributes(kind)?.iter().find(|attribute| attribute.name == name)
}

const POINTWISE: &[Attribute] = &[
    required(N::POINTWISE_MODE, &[T::POINTWISE_MODE]),
    required(N::POINTWISE_MATH_PREC, DATA_TYPE),
    integer(N::POINTWISE_NAN_PROPAGATION, NAN, 0),
    float(N::POINTWISE_RELU_LOWER_CLIP, 0.0),
    float(N::POINTWISE_RELU_UPPER_CLIP, f64::INFINITY),
    float(N::POINTWISE_RELU_LOWER_CLIP_SLOPE, 0.0),
    float(N::POINTWISE_ELU_ALPHA, 1.0),
    float(N::POINTWISE_SOFTPLUS_BETA, 1.0),
    float(N::POINTWISE_SWISH_BETA, 1.0),
    integer(N::POINTWISE_AXIS, INT64, -1),
];

const CONVOLUTION: &[Attribute] = &[
    required(N::CONVOLUTION_COMP_TYPE, DATA_TYPE),
    required(N::CONVOLUTION_CONV_MODE, &[T::CONVOLUTION_MODE]),
    required(N::CONVOLUTION_DILATIONS, INT64).up_to(DIMS),
    required(N::CONVOLUTION_FILTER_STRIDES, INT64).up_to(DIMS),
    required(N::CONVOLUTION_POST_PADDINGS, INT64).up_to(DIMS),
    required(N::CONVOLUTION_PRE_PADDINGS, INT64).up_to(DIMS),
    required(N::CONVOLUTION_SPATIAL_DIMS, INT64),
];

const ENGINE: &[Attribute] = &[
    descriptor(N::ENGINE_OPERATION_GRAPH, &[D::OPERATIONGRAPH_DESCRIPTOR]),
    required(N::ENGINE_GLOBAL_INDEX, INT64),
    descriptor(N::ENGINE_KNOB_INFO, &[D::KNOB_INFO_DESCRIPTOR]).read(),
    read_only(N::ENGINE_NUMERICAL_NOTE, &[T::NUMERICAL_NOTE]),
    descriptor(N::ENGINE_LAYOUT_INFO, &[D::LAYOUT_INFO_DESCRIPTOR]).read(),
    read_only(N::ENGINE_BEHAVIOR_NOTE, &[T::BEHAVIOR_NOTE]),
];

const ENGINECFG: &[Attribute] = &[
    descriptor(N::ENGINECFG_ENGINE, &[D::ENGINE_DESCRIPTOR]),
    descriptor(N::ENGINECFG_INTERMEDIATE_INFO, &[D::INTERMEDIATE_INFO_DESCRIPTOR]).read(),
    descriptor(N::ENGINECFG_KNOB_CHOICES, &[D::KNOB_CHOICE_DESCRIPTOR]).optional().up_to(MANY),
];

const ENGINEHEUR: &[Attribute] = &[
    required(N::ENGINEHEUR_MODE, &[T::HEUR_MODE]),
    descriptor(N::ENGINEHEUR_OPERATION_GRAPH, &[D::OPERATIONGRAPH_DESCRIPTOR]),
    descriptor(N::ENGINEHEUR_RESULTS, &[D::ENGINECFG_DESCRIPTOR]).read(),
];

const EXECUTION_PLAN: &[Attribute] = &[
    required(N::EXECUTION_PLAN_HANDLE, &[T::HANDLE]),
    // Or a plan as text.
    descriptor(N::EXECUTION_PLAN_ENGINE_CONFIG, &[D::ENGINECFG_DESCRIPTOR]).optional(),
    read_only(N::EXECUTION_PLAN_WORKSPACE_SIZE, INT64),
    refused(N::EXECUTION_PLAN_COMPUTED_INTERMEDIATE_UIDS, INT64),
    attribute(N::EXECUTION_PLAN_RUN_ONLY_INTERMEDIATE_UIDS, INT64, Need::Optional).up_to(MANY),
    attribute(N::EXECUTION_PLAN_JSON_REPRESENTATION, &[T::CHAR], Need::Optional).up_to(MANY),
];

const INTERMEDIATE_INFO: &[Attribute] = &[
    read_only(N::INTERMEDIATE_INFO_UNIQUE_ID, INT64),
    read_only(N::INTERMEDIATE_INFO_SIZE, INT64),
    read_only(N::INTERMEDIATE_INFO_DEPENDENT_DATA_UIDS, INT64),
    read_only(N::INTERMEDIATE_INFO_DEPENDENT_ATTRIBUTES, INT64),
];

const KNOB_CHOICE: &[Attribute] = &[
    required(N::KNOB_CHOICE_KNOB_TYPE, &[T::KNOB_TYPE]),
    required(N::KNOB_CHOICE_KNOB_VALUE, INT64),
];

const KNOB_INFO: &[Attribute] = &[
    read_only(N::KNOB_INFO_TYPE, &[T::KNOB_TYPE]),
    read_only(N::KNOB_INFO_MAXIMUM_VALUE, INT64),
    read_only(N::KNOB_INFO_MINIMUM_VALUE, INT64),
    read_only(N::KNOB_INFO_STRIDE, INT64),
];

const LAYOUT_INFO: &[Attribute] = &[
    read_only(N::LAYOUT_INFO_TENSOR_UID, INT64),
    read_only(N::LAYOUT_INFO_TYPES, &[T::LAYOUT_TYPE]),
];

const CONVOLUTION_FORWARD: &[Attribute] = &[
    float(N::OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0),
    float(N::OPERATION_CONVOLUTION_FORWARD_BETA, 0.0),
    descriptor(N::OPERATION_CONVOLUTION_FORWARD_CONV_DESC, &[D::CONVOLUTION_DESCRIPTOR]),
    tensor(N::OPERATION_CONVOLUTION_FORWARD_W),
    tensor(N::OPERATION_CONVOLUTION_FORWARD_X),
    tensor(N::OPERATION_CONVOLUTION_FORWARD_Y),
];

const CONVOLUTION_BWD_DATA: &[Attribute] = &[
    float(N::OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.0),
    float(N::OPERATION_CONVOLUTION_BWD_DATA_BETA, 0.0),
    descriptor(N::OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, &[D::CONVOLUTION_DESCRIPTOR]),
    tensor(N::OPERATION_CONVOLUTION_BWD_DATA_W),
    tensor(N::OPERATION_CONVOLUTION_BWD_DATA_DX),
    tensor(N::OPERATION_CONVOLUTION_BWD_DATA_DY),
];

const CONVOLUTION_BWD_FILTER: &[Attribute] = &[
    float(N::OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1.0),
    float(N::OPERATION_CONVOLUTION_BWD_FILTER_BETA, 0.0),
    descriptor(N::OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, &[D::CONVOLUTION_DESCRIPTOR]),
    tensor(N::OPERATION_CONVOLUTION_BWD_FILTER_DW),
    tensor(N::OPERATION_CONVOLUTION_BWD_FILTER_X),
    tensor(N::OPERATION_CONVOLUTION_BWD_FILTER_DY),
];

const OPERATION_POINTWISE: &[Attribute] = &[
    descriptor(N::OPERATION_POINTWISE_PW_DESCRIPTOR, &[D::POINTWISE_DESCRIPTOR]),
    tensor(N::OPERATION_POINTWISE_XDESC).optional(),
    tensor(N::OPERATION_POINTWISE_BDESC).optional(),
    tensor(N::OPERATION_POINTWISE_YDESC).optional(),
    float(N::OPERATION_POINTWISE_ALPHA1, 1.0),
    float(N::OPERATION_POINTWISE_ALPHA2, 1.0),
    tensor(N::OPERATION_POINTWISE_DXDESC).optional(),
    tensor(N::OPERATION_POINTWISE_DYDESC).optional(),
    tensor(N::OPERATION_POINTWISE_TDESC).optional(),
];

const GEN_STATS: &[Attribute] = &[
    required(N::OPERATION_GENSTATS_MODE, &[T::GENSTATS_MODE]),
    required(N::OPERATION_GENSTATS_MATH_PREC, DATA_TYPE),
    tensor(N::OPERATION_GENSTATS_XDESC),
    tensor(N::OPERATION_GENSTATS_SUMDESC),
    tensor(N::OPERATION_GENSTATS_SQSUMDESC),
];

const OPERATIONGRAPH: &[Attribute] = &[
    required(N::OPERATIONGRAPH_HANDLE, &[T::HANDLE]),
    descriptor(N::OPERATIONGRAPH_OPS, OPERATIONS).up_to(MANY),
    read_only(N::OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, INT64),
    refused(N::OPERATIONGRAPH_ENGINE_SUPPORTED_COUNT, INT64),
];

const VARIANT_PACK: &[Attribute] = &[
    attribute(N::VARIANT_PACK_UNIQUE_IDS, INT64, Need::Optional).up_to(MANY),
    attribute(N::VARIANT_PACK_DATA_POINTERS, &[T::VOID_PTR], Need::Optional).up_to(MANY),
    refused(N::VARIANT_PACK_INTERMEDIATES, &[T::BACKEND_DESCRIPTOR]),
    attribute(N::VARIANT_PACK_WORKSPACE, &[T::VOID_PTR], Need::Optional),
];

const TENSOR: &[Attribute] = &[
    required(N::TENSOR_BYTE_ALIGNMENT, INT64),
    required(N::TENSOR_DATA_TYPE, DATA_TYPE),
    required(N::TENSOR_DIMENSIONS, INT64).up_to(DIMS),
    required(N::TENSOR_STRIDES, INT64).up_to(DIMS),
    integer(N::TENSOR_VECTOR_COUNT, INT64, 1),
    integer(N::TENSOR_VECTORIZED_DIMENSION, INT64, -1),
    required(N::TENSOR_UNIQUE_ID, INT64),
    integer(N::TENSOR_IS_VIRTUAL, &[T::BOOLEAN], 0),
    integer(N::TENSOR_IS_BY_VALUE, &[T::BOOLEAN], 0),
    integer(N::TENSOR_REORDERING_MODE, &[T::TENSOR_REORDERING_MODE], 0),
];

const MATMUL: &[Attribute] = &[required(N::MATMUL_COMP_TYPE, DATA_TYPE)];

const OPERATION_MATMUL: &[Attribute] = &[
    tensor(N::OPERATION_MATMUL_ADESC),
    tensor(N::OPERATION_MATMUL_BDESC),
    tensor(N::OPERATION_MATMUL_CDESC),
    descriptor(N::OPERATION_MATMUL_DESC, &[D::MATMUL_DESCRIPTOR]),
    integer(N::OPERATION_MATMUL_IRREGULARLY_STRIDED_BATCH_COUNT, INT64, 1),
    tensor(N::OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC).optional(),
    tensor(N::OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC).optional(),
    tensor(N::OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC).optional(),
];

const BN_FINALIZE: &[Attribute] = &[
    required(N::OPERATION_BN_FINALIZE_STATS_MODE, &[T::BN_FINALIZE_STATS_MODE]),
    required(N::OPERATION_BN_FINALIZE_MATH_PREC, DATA_TYPE),
    tensor(N::OPERATION_BN_FINALIZE_Y_SUM_DESC).optional(),
    tensor(N::OPERATION_BN_FINALIZE_Y_SQ_SUM_DESC).optional(),
    tensor(N::OPERATION_BN_FINALIZE_SCALE_DESC),
    tensor(N::OPERATION_BN_FINALIZE_BIAS_DESC),
    tensor(N::OPERATION_BN_FINALIZE_PREV_RUNNING_MEAN_DESC).optional(),
    tensor(N::OPERATION_BN_FINALIZE_PREV_RUNNING_VAR_DESC).optional(),
    tensor(N::OPERATION_BN_FINALIZE_UPDATED_RUNNING_MEAN_DESC).optional(),
    tensor(N::OPERATION_BN_FINALIZE_UPDATED_RUNNING_VAR_DESC).optional(),
    tensor(N::OPERATION_BN_FINALIZE_SAVED_MEAN_DESC).optional(),
    tensor(N::OPERATION_BN_FINALIZE_SAVED_INV_STD_DESC).optional(),
    tensor(N::OPERATION_BN_FINALIZE_EQ_SCALE_DESC),
    tensor(N::OPERATION_BN_FINALIZE_EQ_BIAS_DESC),
    tensor(N::OPERATION_BN_FINALIZE_ACCUM_COUNT_DESC).optional(),
    tensor(N::OPERATION_BN_FINALIZE_EPSILON_DESC),
    tensor(N::OPERATION_BN_FINALIZE_EXP_AVERATE_FACTOR_DESC).optional(),
];

const REDUCTION: &[Attribute] = &[
    required(N::REDUCTION_OPERATOR, &[T::REDUCTION_OPERATOR_TYPE]),
    required(N::REDUCTION_COMP_TYPE, DATA_TYPE),
];

const OPERATION_REDUCTION: &[Attribute] = &[
    tensor(N::OPERATION_REDUCTION_XDESC),
    tensor(N::OPERATION_REDUCTION_YDESC),
    descriptor(N::OPERATION_REDUCTION_DESC, &[D::REDUCTION_DESCRIPTOR]),
];

const BN_BWD_WEIGHTS: &[Attribute] = &[
    required(N::OPERATION_BN_BWD_WEIGHTS_MATH_PREC, DATA_TYPE),
    tensor(N::OPERATION_BN_BWD_WEIGHTS_MEAN_DESC),
    tensor(N::OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC),
    tensor(N::OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC),
    tensor(N::OPERATION_BN_BWD_WEIGHTS_X_DESC),
    tensor(N::OPERATION_BN_BWD_WEIGHTS_DY_DESC),
    tensor(N::OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC),
    tensor(N::OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC),
    tensor(N::OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC),
    tensor(N::OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC),
    tensor(N::OPERATION_BN_BWD_WEIGHTS_EQ_BIAS),
];

const RESAMPLE: &[Attribute] = &[
    integer(N::RESAMPLE_MODE, &[T::RESAMPLE_MODE], 0),
    integer(N::RESAMPLE_COMP_TYPE, DATA_TYPE, 0),
    required(N::RESAMPLE_SPATIAL_DIMS, INT64),
    required(N::RESAMPLE_POST_PADDINGS, WHOLE).up_to(SPATIAL),
    required(N::RESAMPLE_PRE_PADDINGS, WHOLE).up_to(SPATIAL),
    required(N::RESAMPLE_STRIDES, WHOLE).up_to(SPATIAL),
    required(N::RESAMPLE_WINDOW_DIMS, WHOLE).up_to(SPATIAL),
    integer(N::RESAMPLE_NAN_PROPAGATION, NAN, 0),
    integer(N::RESAMPLE_PADDING_MODE, &[T::PADDING_MODE], 0),
];

const RESAMPLE_FWD: &[Attribute] = &[
    tensor(N::OPERATION_RESAMPLE_FWD_XDESC),
    tensor(N::OPERATION_RESAMPLE_FWD_YDESC),
    tensor(N::OPERATION_RESAMPLE_FWD_IDXDESC).optional(),
    float(N::OPERATION_RESAMPLE_FWD_ALPHA, 1.0),
    float(N::OPERATION_RESAMPLE_FWD_BETA, 0.0),
    descriptor(N::OPERATION_RESAMPLE_FWD_DESC, &[D::RESAMPLE_DESCRIPTOR]),
];

const RESAMPLE_BWD: &[Attribute] = &[
    tensor(N::OPERATION_RESAMPLE_BWD_DXDESC),
    tensor(N::OPERATION_RESAMPLE_BWD_DYDESC),
    tensor(N::OPERATION_RESAMPLE_BWD_IDXDESC).optional(),
    float(N::OPERATION_RESAMPLE_BWD_ALPHA, 1.0),
    float(N::OPERATION_RESAMPLE_BWD_BETA, 0.0),
    descriptor(N::OPERATION_RESAMPLE_BWD_DESC, &[D::RESAMPLE_DESCRIPTOR]),
    tensor(N::OPERATION_RESAMPLE_BWD_XDESC).optional(),
    tensor(N::OPERATION_RESAMPLE_BWD_YDESC).optional(),
];

const CONCAT: &[Attribute] = &[
    required(N::OPERATION_CONCAT_AXIS, INT64),
    tensor(N::OPERATION_CONCAT_INPUT_DESCS).up_to(MANY),
    attribute(N::OPERATION_CONCAT_INPLACE_INDEX, INT64, Need::Optional),
    tensor(N::OPERATION_CONCAT_OUTPUT_DESC),
];

const SIGNAL: &[Attribute] = &[
    required(N::OPERATION_SIGNAL_MODE, &[T::SIGNAL_MODE]),
    tensor(N::OPERATION_SIGNAL_FLAGDESC),
    required(N::OPERATION_SIGNAL_VALUE, INT64),
    tensor(N::OPERATION_SIGNAL_XDESC),
    tensor(N::OPERATION_SIGNAL_YDESC).optional(),
];

const NORM_FORWARD: &[Attribute] = &[
    required(N::OPERATION_NORM_FWD_MODE, &[T::NORM_MODE]),
    required(N::OPERATION_NORM_FWD_PHASE, &[T::NORM_FWD_PHASE]),
    tensor(N::OPERATION_NORM_FWD_XDESC),
    tensor(N::OPERATION_NORM_FWD_MEAN_DESC).optional(),
    tensor(N::OPERATION_NORM_FWD_INV_VARIANCE_DESC).optional(),
    tensor(N::OPERATION_NORM_FWD_SCALE_DESC),
    tensor(N::OPERATION_NORM_FWD_BIAS_DESC),
    tensor(N::OPERATION_NORM_FWD_EPSILON_DESC),
    tensor(N::OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC).optional(),
    tensor(N::OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC).optional(),
    tensor(N::OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC).optional(),
    tensor(N::OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC).optional(),
    tensor(N::OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC).optional(),
    tensor(N::OPERATION_NORM_FWD_YDESC),
    tensor(N::OPERATION_NORM_FWD_PEER_STAT_DESCS).optional().up_to(MANY),
];

const NORM_BACKWARD: &[Attribute] = &[
    required(N::OPERATION_NORM_BWD_MODE, &[T::NORM_MODE]),
    tensor(N::OPERATION_NORM_BWD_XDESC),
    tensor(N::OPERATION_NORM_BWD_MEAN_DESC).optional(),
    tensor(N::OPERATION_NORM_BWD_INV_VARIANCE_DESC).optional(),
    tensor(N::OPERATION_NORM_BWD_DYDESC),
    tensor(N::OPERATION_NORM_BWD_SCALE_DESC),
    tensor(N::OPERATION_NORM_BWD_EPSILON_DESC).optional(),
    tensor(N::OPERATION_NORM_BWD_DSCALE_DESC),
    tensor(N::OPERATION_NORM_BWD_DBIAS_DESC),
    tensor(N::OPERATION_NORM_BWD_DXDESC),
    tensor(N::OPERATION_NORM_BWD_PEER_STAT_DESCS).optional().up_to(MANY),
];

const RESHAPE: &[Attribute] =
    &[tensor(N::OPERATION_RESHAPE_XDESC), tensor(N::OPERATION_RESHAPE_YDESC)];

const RNG: &[Attribute] = &[
    integer(N::RNG_DISTRIBUTION, &[T::RNG_DISTRIBUTION], 0),
    double(N::RNG_NORMAL_DIST_MEAN, -1.0),
    double(N::RNG_NORMAL_DIST_STANDARD_DEVIATION, -1.0),
    double(N::RNG_UNIFORM_DIST_MAXIMUM, -1.0),
    double(N::RNG_UNIFORM_DIST_MINIMUM, -1.0),
    double(N::RNG_BERNOULLI_DIST_PROBABILITY, -1.0),
];

const OPERATION_RNG: &[Attribute] = &[
    tensor(N::OPERATION_RNG_YDESC),
    Attribute {
        of: &[D::TENSOR_DESCRIPTOR],
        ..integer(N::OPERATION_RNG_SEED, &[T::INT64, T::BACKEND_DESCRIPTOR], 0)
    },
    descriptor(N::OPERATION_RNG_DESC, &[D::RNG_DESCRIPTOR]),
    tensor(N::OPERATION_RNG_OFFSET_DESC),
];
