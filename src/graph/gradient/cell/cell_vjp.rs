//! What the derivative of a cell is.

use crate::graph::cell::Cell;

/// Where the derivative writes a gradient at every step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::graph) enum Written {
    /// In this vector of its output.
    Output(usize),
    /// In this saved vector.
    Saved(usize),
}

/// The derivative of a cell.
#[derive(Debug, Clone)]
pub(in crate::graph) struct CellVjp {
    /// The cell, with what the derivative reads among its results.
    pub(in crate::graph) forward: Cell,
    /// What it saves at every step: the unit inputs of `backward`, in order.
    pub(in crate::graph) saved: Vec<String>,
    /// Its input is the gradient of `y`, followed by those of the other states in the history. Its
    /// states besides the output are the gradients of those of the cell.
    pub(in crate::graph) backward: Cell,
    /// What `backward` saves.
    pub(in crate::graph) gradients: Vec<String>,
    /// The gradients of input contributions, of recurrent ones, of parameters, row inputs and unit
    /// inputs; `None` for one that is 0.
    pub(in crate::graph) gates: Vec<Option<Written>>,
    pub(in crate::graph) recurrent: Vec<Option<Written>>,
    pub(in crate::graph) parameters: Vec<Option<Written>>,
    pub(in crate::graph) row_inputs: Vec<Option<Written>>,
    pub(in crate::graph) unit_inputs: Vec<Option<Written>>,
    /// For each GEMM of the cell the saved vector that is its operand; of a projected cell the
    /// vector that is projected.
    pub(in crate::graph) operands: Vec<usize>,
    /// Of a projected cell, the gradients of the recurrent contributions of the step behind.
    pub(in crate::graph) behind: Vec<Option<Written>>,
    /// Of a projected cell whose final output has a gradient, that at the last step and 0 at
    /// others: the last state of `backward`, in the first elements of a vector.
    pub(in crate::graph) of_final: Option<Written>,
}

/// Which results of a cell have gradients beside its output.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::graph) struct Given {
    /// The history of the other states.
    pub(in crate::graph) history: bool,
    /// The output after the last step.
    pub(in crate::graph) h_final: bool,
}
