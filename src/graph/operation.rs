//! The nodes of an operation graph.

use std::fmt;

use crate::expr::Pointwise;

/// One operation; tensors are named by uid.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// `output = op(inputs...)`, element by element (section 8.2.2.19). Operands in the order of
    /// the document's formula: `x`, then `b` or `dy`, then `t`.
    Pointwise {
        /// What is computed.
        op: Pointwise,
        /// Uids of the operands.
        inputs: Vec<i64>,
        /// Uid of the result.
        output: i64,
    },
}

impl Operation {
    /// Uids of the tensors read.
    pub fn inputs(&self) -> &[i64] {
        match self {
            Operation::Pointwise { inputs, .. } => inputs,
        }
    }

    /// Uid of the tensor written.
    pub fn output(&self) -> i64 {
        match self {
            Operation::Pointwise { output, .. } => *output,
        }
    }
}

impl fmt::Display for Operation {
    /// What is done, without operands: `relu_fwd{upper_clip=6}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Pointwise { op, .. } => op.fmt(f),
        }
    }
}
