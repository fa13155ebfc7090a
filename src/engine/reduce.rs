//! Reductions as templates know them: the structures of `device/ops/reduce.cuh`.

use crate::graph::ReductionOp;

/// The structure that a reduction takes its steps with.
pub(super) fn op_name(op: ReductionOp) -> &'static str {
    match op {
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

/// The result of a reduction that is not what its parts are joined to: from that, and from how many
/// values there were.
pub(super) fn finished(op: ReductionOp, part: &str, count: &str) -> Option<String> {
    match op {
        ReductionOp::Avg => Some(format!("{part} / {count}")),
        ReductionOp::Norm2 => Some(format!("sqrt({part})")),
        _ => None,
    }
}
