//! An operation that computes something for its gradients alone.

use crate::dtype::DType;
use crate::graph::operation::Op;

/// An operation with one more result, its last, and what that is.
pub(super) struct Kept {
    pub(super) op: Op,
    pub(super) name: String,
    pub(super) dims: Vec<i64>,
    pub(super) dtype: DType,
}
