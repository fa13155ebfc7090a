//! Layers of a network: operations of graphs, the boundary layers of loops, conditionals.

use std::fmt;

use crate::graph::Operation;

/// A loop of a network, by its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Loop(pub(super) usize);

/// What bounds the number of trips of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TripLimit {
    /// A number of trips from outside the loop, `i32`; none where it is negative.
    Count,
    /// A `bool` of every trip: the number of trips is the least `n` whose value is false.
    While,
}

/// What a loop output makes of the sequence `<X0, X1, ..>` of its input, for `n` trips.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoopOutput {
    /// `Xn` of a recurrence: its initial value for no trip.
    LastValue,
    /// `X0` to `X(n-1)` along a new axis, then 0 up to its length.
    Concatenate {
        /// Position of the new axis.
        axis: usize,
        /// Its extent, at least the number of trips.
        length: i64,
    },
    /// As `Concatenate`, with `X(n-1)` first.
    Reverse {
        /// Position of the new axis.
        axis: usize,
        /// Its extent, at least the number of trips.
        length: i64,
    },
}

/// A result of a conditional: the value of one of two tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BranchResult {
    /// Its value where the condition is true.
    pub then: i64,
    /// Its value where the condition is false.
    pub otherwise: i64,
    /// The result.
    pub y: i64,
}

/// A layer; tensors are identified by uid.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Layer {
    /// An operation, applied to the sequences of its operands element by element.
    Operation(Operation),
    /// A limit of a loop's trips.
    TripLimit {
        /// The loop.
        of: Loop,
        /// The kind of limit.
        limit: TripLimit,
        /// One element.
        x: i64,
    },
    /// `<x[0], x[1], ..>` along an axis, or from the end.
    Iterator {
        /// The loop.
        of: Loop,
        /// A tensor from outside the loop.
        x: i64,
        /// The axis, which `y` lacks.
        axis: usize,
        /// Whether the order is from the end.
        reverse: bool,
        /// The element of a trip.
        y: i64,
    },
    /// `<initial, next0, next1, ..>`.
    Recurrence {
        /// The loop.
        of: Loop,
        /// A tensor from outside the loop.
        initial: i64,
        /// The value of the following trip; the only tensor that may be computed from `y`.
        next: i64,
        /// The value of a trip.
        y: i64,
    },
    /// What the loop hands out.
    LoopOutput {
        /// The loop.
        of: Loop,
        /// The kind of output.
        output: LoopOutput,
        /// A tensor of the loop.
        x: i64,
        /// The result, outside the loop.
        y: i64,
    },
    /// Results of the branch that a condition chooses; the other one is not evaluated.
    Conditional {
        /// One `bool`.
        condition: i64,
        /// One at least.
        results: Vec<BranchResult>,
    },
}

impl TripLimit {
    /// Name in problem files and messages.
    pub fn name(self) -> &'static str {
        match self {
            TripLimit::Count => "count",
            TripLimit::While => "while",
        }
    }
}

impl LoopOutput {
    /// Name in problem files and messages.
    pub fn name(self) -> &'static str {
        match self {
            LoopOutput::LastValue => "last_value",
            LoopOutput::Concatenate { .. } => "concatenate",
            LoopOutput::Reverse { .. } => "reverse",
        }
    }

    /// Axis and length of a concatenation in either order.
    pub fn concatenated(self) -> Option<(usize, i64)> {
        match self {
            LoopOutput::LastValue => None,
            LoopOutput::Concatenate { axis, length } | LoopOutput::Reverse { axis, length } => {
                Some((axis, length))
            }
        }
    }
}

impl fmt::Display for LoopOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Layer {
    /// The loop of a boundary layer.
    pub fn of_loop(&self) -> Option<Loop> {
        match self {
            Layer::TripLimit { of, .. }
            | Layer::Iterator { of, .. }
            | Layer::Recurrence { of, .. }
            | Layer::LoopOutput { of, .. } => Some(*of),
            Layer::Operation(_) | Layer::Conditional { .. } => None,
        }
    }

    /// Uids of the tensors that it reads.
    pub fn inputs(&self) -> Vec<i64> {
        match self {
            Layer::Operation(operation) => operation.inputs.clone(),
            Layer::TripLimit { x, .. }
            | Layer::Iterator { x, .. }
            | Layer::LoopOutput { x, .. } => vec![*x],
            Layer::Recurrence { initial, next, .. } => vec![*initial, *next],
            Layer::Conditional { condition, results } => {
                let values = results.iter().flat_map(|of| [of.then, of.otherwise]);
                std::iter::once(*condition).chain(values).collect()
            }
        }
    }

    /// Uids of the tensors that it writes.
    pub fn outputs(&self) -> Vec<i64> {
        match self {
            Layer::Operation(operation) => operation.outputs.clone(),
            Layer::TripLimit { .. } => Vec::new(),
            Layer::Iterator { y, .. }
            | Layer::Recurrence { y, .. }
            | Layer::LoopOutput { y, .. } => vec![*y],
            Layer::Conditional { results, .. } => results.iter().map(|of| of.y).collect(),
        }
    }
}
