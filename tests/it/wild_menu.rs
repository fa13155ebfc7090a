//! What random graphs of all operations are made of.

use kiln::DType;
use kiln::expr::Mode;

/// What graphs are made of.
pub struct Menu {
    /// Extents of dimensions, each as likely as the others.
    pub extents: &'static [i64],
    /// Types of tensors.
    pub types: &'static [DType],
    /// Pointwise operations.
    pub modes: &'static [Mode],
    /// The most operations of a graph.
    pub operations_max: usize,
    /// The most multiplications of a convolution.
    pub multiplications_max: i64,
}

/// Anything at all, to be planned.
pub const ANYTHING: Menu = Menu {
    extents: &[0, 1, 1, 2, 3, 4, 7, 16, 31, 65, 127, 257, 1000, 4096, 65_536, 1 << 20, 1 << 31],
    types: &[
        DType::F32,
        DType::F32,
        DType::F16,
        DType::Bf16,
        DType::F64,
        DType::I32,
        DType::I8,
        DType::U8,
        DType::Bool,
    ],
    modes: &Mode::ALL,
    operations_max: 8,
    multiplications_max: i64::MAX,
};

/// What runs in milliseconds and stays finite.
pub const SMALL: Menu = Menu {
    extents: &[0, 1, 1, 2, 3, 7, 16, 33, 65],
    types: &[DType::F32, DType::F32, DType::F16, DType::Bf16],
    modes: &[
        Mode::ReluFwd,
        Mode::TanhFwd,
        Mode::Neg,
        Mode::Identity,
        Mode::Add,
        Mode::Sub,
        Mode::Mul,
        Mode::Max,
        Mode::CmpGt,
        Mode::ReluBwd,
        Mode::BinarySelect,
    ],
    operations_max: 6,
    multiplications_max: 1 << 21,
};
