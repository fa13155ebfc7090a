//! Reductions: one value of many.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::expr::Math;
use crate::tensor::TensorDesc;

/// How values become one (`mcdnnReduceTensorOp_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReductionOp {
    /// Their sum; 0 of none.
    Add,
    /// Their product; 1 of none.
    Mul,
    /// The least; infinity of none. NaN if one is NaN.
    Min,
    /// The greatest; minus infinity of none. NaN if one is NaN.
    Max,
    /// The greatest magnitude; 0 of none. NaN if one is NaN.
    Amax,
    /// Their mean; NaN of none.
    Avg,
    /// The sum of magnitudes; 0 of none.
    Norm1,
    /// The root of the sum of squares; 0 of none.
    Norm2,
    /// The product of those that are not 0; 1 of none.
    MulNoZeros,
}

impl ReductionOp {
    /// All of them.
    pub const ALL: [ReductionOp; 9] = [
        ReductionOp::Add,
        ReductionOp::Mul,
        ReductionOp::Min,
        ReductionOp::Max,
        ReductionOp::Amax,
        ReductionOp::Avg,
        ReductionOp::Norm1,
        ReductionOp::Norm2,
        ReductionOp::MulNoZeros,
    ];

    /// The name in texts and problem files.
    pub fn name(self) -> &'static str {
        match self {
            ReductionOp::Add => "add",
            ReductionOp::Mul => "mul",
            ReductionOp::Min => "min",
            ReductionOp::Max => "max",
            ReductionOp::Amax => "amax",
            ReductionOp::Avg => "avg",
            ReductionOp::Norm1 => "norm1",
            ReductionOp::Norm2 => "norm2",
            ReductionOp::MulNoZeros => "mul_no_zeros",
        }
    }
}

impl FromStr for ReductionOp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        ReductionOp::ALL.into_iter().find(|op| op.name() == text).ok_or_else(|| {
            let known = ReductionOp::ALL.map(ReductionOp::name).join(", ");
            Error::bad_param(format!("unknown reduction `{text}`: expected one of {known}"))
        })
    }
}

/// A reduction along every dimension that the result has 1 of
/// (`MCDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR`, section 8.2.2.20).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reduction {
    /// How values become one.
    pub op: ReductionOp,
    /// What is computed in.
    pub math: Math,
}

impl Reduction {
    /// A reduction in single precision.
    pub fn new(op: ReductionOp) -> Reduction {
        Reduction { op, math: Math::F32 }
    }

    pub(super) fn check(&self, x: &TensorDesc, y: &TensorDesc) -> Result<()> {
        let fits = |(x, y): (&i64, &i64)| x == y || *y == 1;
        if x.dims.len() == y.dims.len() && x.dims.iter().zip(&y.dims).all(fits) {
            return Ok(());
        }
        Err(Error::bad_param(format!(
            "{self}: output `{}` is {:?}, expected the dimensions of `{}`, {:?}, some of them 1",
            y.name, y.dims, x.name, x.dims
        )))
    }
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reduce_{}", self.op.name())?;
        if self.math == Math::F64 { f.write_str("[f64]") } else { Ok(()) }
    }
}
