//! Reductions.

use std::fmt;
use std::str::FromStr;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::Math;
use crate::graph::semantics::{Semantics, check_operand_types};
use crate::graph::slots::Slots;
use crate::tensor::TensorDesc;

/// Reduction operator (`mcdnnReduceTensorOp_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReductionOp {
    /// Sum; 0 if empty.
    Add,
    /// Product; 1 if empty.
    Mul,
    /// Minimum, NaN if any element is; infinity, or the largest integer, if empty.
    Min,
    /// Maximum, NaN if any element is; minus infinity, or the smallest integer, if empty.
    Max,
    /// Maximum magnitude, NaN if any element is; 0 if empty.
    Amax,
    /// Mean; NaN if empty.
    Avg,
    /// Sum of magnitudes; 0 if empty.
    Norm1,
    /// Square root of the sum of squares; 0 if empty.
    Norm2,
    /// Product of the nonzero elements; 1 if there are none.
    MulNoZeros,
}

impl ReductionOp {
    /// All operators.
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

    /// Name in messages and problem files.
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

/// Reduction along every dimension whose extent in the result is 1
/// (`MCDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR`, section 8.2.2.20).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reduction {
    /// Reduction operator.
    pub op: ReductionOp,
    /// Precision of the computation.
    pub math: Math,
}

impl Reduction {
    /// Returns a reduction with the default precision: i32 for integers, f32 for all others.
    pub fn new(op: ReductionOp) -> Reduction {
        Reduction { op, math: Math::Default }
    }

    /// Replaces [`Math::Default`] by the precision for an `x` of this type: i32 for integers,
    /// except for means and norms, which use f32.
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
}

impl Semantics for Reduction {
    fn name(&self) -> &'static str {
        "reduction"
    }

    fn slots(&self) -> Slots {
        Slots::new(&["x"], &["y"])
    }

    fn math(&self) -> DType {
        self.math.dtype()
    }

    fn infer(&self, _inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        Ok(None)
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        let (x, y) = (inputs[0], outputs[0]);
        if self.math == Math::I32 && !(x.dtype.is_integer() && self.is_integral()) {
            let (name, dtype) = (&x.name, x.dtype);
            return Err(Error::bad_param(match self.is_integral() {
                true => format!("{self}: `{name}` is {dtype}, math i32 accepts integers"),
                false => format!("{self}: not defined for math i32"),
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

    fn check_types(&self, inputs: &[&TensorDesc]) -> Result<()> {
        check_operand_types(self.name(), inputs)
    }

    fn resolve(&mut self, operands: &[DType]) {
        *self = self.resolved(operands.first().copied().unwrap_or(DType::F32));
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
