//! Reductions as templates name them: the operators of `device/ops/reduce.cuh`.

use crate::expr::Math;
use crate::graph::{Reduction, ReductionOp};

/// The operator of a reduction.
pub(super) fn op_name(of: Reduction) -> &'static str {
    match of.op {
        ReductionOp::Add if of.math == Math::I32 => "AddI32",
        ReductionOp::Mul if of.math == Math::I32 => "MulI32",
        ReductionOp::Min if of.math == Math::I32 => "MinI32",
        ReductionOp::Max if of.math == Math::I32 => "MaxI32",
        ReductionOp::Amax if of.math == Math::I32 => "AmaxI32",
        ReductionOp::Norm1 if of.math == Math::I32 => "Norm1I32",
        ReductionOp::MulNoZeros if of.math == Math::I32 => "MulNoZerosI32",
        ReductionOp::Add | ReductionOp::Avg => "Add",
        ReductionOp::Mul => "Mul",
        ReductionOp::Min => "Min",
        ReductionOp::Max => "Max",
        ReductionOp::Amax => "Amax",
        ReductionOp::Norm1 => "Norm1",
        ReductionOp::Norm2 => "Norm2",
        ReductionOp::MulNoZeros => "MulNoZeros",
    }
}

/// The result of a reduction that is not its combined partials: from those, and from the number of
/// values.
pub(super) fn finished(op: ReductionOp, partial: &str, count: &str) -> Option<String> {
    match op {
        ReductionOp::Avg => Some(format!("{partial} / {count}")),
        ReductionOp::Norm2 => Some(format!("sqrt({partial})")),
        _ => None,
    }
}
