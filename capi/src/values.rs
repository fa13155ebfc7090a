//! Enumerations that several chapters share, and what of Kiln's they are.

use kiln::dtype::DType;
use kiln::expr::NanPropagation as NanRule;
use kiln::rnn::MathType as Math;

use crate::declare::enumeration;
use crate::status::{Outcome, refuse};

enumeration! {
    /// The type of elements.
    mcdnnDataType_t DataType "MCDNN_DATA_" {
        FLOAT = 0, DOUBLE = 1, HALF = 2, INT8 = 3, INT32 = 4, INT8x4 = 5, UINT8 = 6, UINT8x4 = 7,
        INT8x32 = 8, BFLOAT16 = 9, INT64 = 10, BOOLEAN = 11, FP8_E4M3 = 12, FP8_E5M2 = 13,
        FAST_FLOAT_FOR_FP8 = 14,
    }
}

enumeration! {
    /// Whether tensor cores may be used.
    mcdnnMathType_t MathType "MCDNN_" {
        DEFAULT_MATH = 0, TENSOR_OP_MATH = 1, TENSOR_OP_MATH_ALLOW_CONVERSION = 2, FMA_MATH = 3,
    }
}

enumeration! {
    /// Whether a NaN stays one.
    mcdnnNanPropagation_t NanPropagation "MCDNN_" { NOT_PROPAGATE_NAN = 0, PROPAGATE_NAN = 1 }
}

enumeration! {
    /// The order of a tensor's dimensions in memory.
    mcdnnTensorFormat_t TensorFormat "MCDNN_TENSOR_" { NCHW = 0, NHWC = 1, NCHW_VECT_C = 2 }
}

enumeration! {
    /// Whether the results may differ from run to run.
    mcdnnDeterminism_t Determinism "MCDNN_" { NON_DETERMINISTIC = 0, DETERMINISTIC = 1 }
}

enumeration! {
    /// Whether the gradients of weights are added to those in memory, or replace them.
    mcdnnWgradMode_t WgradMode "MCDNN_WGRAD_MODE_" { ADD = 0, SET = 1 }
}

impl DataType {
    /// Bytes of an element; of those that are packed together, of all.
    pub fn bytes(self) -> usize {
        match self {
            DataType::DOUBLE | DataType::INT64 => 8,
            DataType::HALF | DataType::BFLOAT16 => 2,
            DataType::INT8 | DataType::UINT8 | DataType::BOOLEAN => 1,
            DataType::FP8_E4M3 | DataType::FP8_E5M2 => 1,
            DataType::INT8x32 => 32,
            _ => 4,
        }
    }

    /// The type of Kiln's that it is.
    pub fn dtype(self, name: &str) -> Outcome<DType> {
        match self {
            DataType::FLOAT => Ok(DType::F32),
            DataType::DOUBLE => Ok(DType::F64),
            DataType::HALF => Ok(DType::F16),
            DataType::BFLOAT16 => Ok(DType::Bf16),
            other => refuse(format!("{name} is {}", DataType::TABLE.shown(other.0))),
        }
    }

    /// As [`DataType::dtype`], or an 8-bit integer.
    pub fn dtype_or_integer(self, name: &str) -> Outcome<DType> {
        match self {
            DataType::INT8 => Ok(DType::I8),
            DataType::UINT8 => Ok(DType::U8),
            other => other.dtype(name),
        }
    }

    /// That of a type of Kiln's that has one.
    pub fn of(dtype: DType) -> DataType {
        match dtype {
            DType::I8 => DataType::INT8,
            DType::U8 => DataType::UINT8,
            DType::F64 => DataType::DOUBLE,
            DType::F16 => DataType::HALF,
            DType::Bf16 => DataType::BFLOAT16,
            _ => DataType::FLOAT,
        }
    }
}

impl MathType {
    /// What it is for data of a type: a hint, of which only conversions to tf32 change results.
    pub fn hint(self, data_type: DType) -> Outcome<Math> {
        Ok(match self.known("mathType")? {
            MathType::TENSOR_OP_MATH_ALLOW_CONVERSION if data_type != DType::F64 => {
                Math::TensorOpAllowConversion
            }
            MathType::TENSOR_OP_MATH if !matches!(data_type, DType::F32 | DType::F64) => {
                Math::TensorOp
            }
            _ => Math::Default,
        })
    }
}

impl NanPropagation {
    /// Kiln's rule.
    pub fn rule(self) -> NanRule {
        match self {
            NanPropagation::PROPAGATE_NAN => NanRule::Propagate,
            _ => NanRule::NotPropagate,
        }
    }
}
