//! Reductions: one value of many.

use std::fmt;
use std::str::FromStr;

use crate::dtype::DType;
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
    /// The least; infinity, or the greatest integer, of none. NaN if one is NaN.
    Min,
    /// The greatest; minus infinity, or the least integer, of none. NaN if one is NaN.
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
    /// A reduction of integers in integers of 32 bits, of anything else in single precision.
    pub fn new(op: ReductionOp) -> Reduction {
        Reduction { op, math: Math::Default }
    }

    /// The reduction with [`Math::Default`] replaced by the precision that it stands for where `x`
    /// has this type: that of integers, but for means and roots.
    #[must_use]
    pub fn resolved(self, x: DType) -> Reduction {
        let math = match self.math {
            Math::Default if x.is_integer() && self.is_integral() => Math::I32,
            Math::Default => Math::F32,
            math => math,
        };
        Reduction { math, ..self }
    }

    fn is_integral(&self) -> bool {
        !matches!(self.op, ReductionOp::Avg | ReductionOp::Norm2)
    }

    pub(super) fn check(&self, x: &TensorDesc, y: &TensorDesc) -> Result<()> {
        if self.math == Math::I32 && !(x.dtype.is_integer() && self.is_integral()) {
            let (name, dtype) = (&x.name, x.dtype);
            return Err(Error::bad_param(match self.is_integral() {
                true => format!("{self}: `{name}` is {dtype}, math i32 takes integers"),
                false => format!("{self}: math i32, in which it has no result"),
            }));
        }
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
        match (self.math, self.math.name()) {
            (Math::F64 | Math::I32, Some(name)) => write!(f, "[{name}]"),
            _ => Ok(()),
        }
    }
}
