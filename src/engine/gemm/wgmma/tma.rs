//! Operands and outputs as TMA tensors.

use crate::engine::gemm::problem::{Fusion, Operand, Problem};
use crate::engine::tma::{Dimension, TmaTensor};
use crate::error::{Error, Result};

/// An operand or output of the GEMM as TMA copies it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct TmaOperand {
    pub(super) at: usize,
    pub(super) tensor: TmaTensor,
    /// Batch dimensions of the tensor, innermost first.
    batches: Vec<usize>,
}

impl TmaOperand {
    /// The TMA tensor of an operand.
    ///
    /// # Errors
    /// `NotSupported` with the rule that refused.
    pub(super) fn operand(problem: &Problem<'_>, operand: &Operand) -> Result<TmaOperand> {
        TmaOperand::operand_at(problem, operand, operand.tensor)
    }

    /// The TMA tensor of `at`, which has the operand's layout.
    ///
    /// # Errors
    /// `NotSupported` with the rule that refused.
    pub(super) fn operand_at(
        problem: &Problem<'_>,
        operand: &Operand,
        at: usize,
    ) -> Result<TmaOperand> {
        let tensor = &problem.graph.tensors[at];
        let name = &tensor.name;
        if !operand.is_plain() || tensor.by_value {
            return Err(Error::not_supported(format!(
                "operand `{name}` is computed, a TMA copy loads it as it is"
            )));
        }
        let view = operand.prologue.axes.view(tensor);
        let (k, rows) = ((problem.k, view.column), (operand.extent, view.row));
        let matrix = if operand.k_major { [k, rows] } else { [rows, k] };
        TmaOperand::of(problem, at, &operand.prologue, matrix)
    }

    /// The TMA tensor of an output.
    ///
    /// # Errors
    /// `NotSupported` with the rule that refused.
    pub(super) fn output(problem: &Problem<'_>, at: usize) -> Result<TmaOperand> {
        let view = problem.epilogue.axes.view(&problem.graph.tensors[at]);
        let matrix = [(problem.n, view.column), (problem.m, view.row)];
        TmaOperand::of(problem, at, &problem.epilogue, matrix)
    }

    fn of(
        problem: &Problem<'_>,
        at: usize,
        fusion: &Fusion,
        matrix: [Dimension; 2],
    ) -> Result<TmaOperand> {
        let tensor = &problem.graph.tensors[at];
        let view = fusion.axes.view(tensor);
        let own = |batch: &usize| view.batches[*batch] != 0;
        let batches: Vec<usize> = (0..view.batches.len()).rev().filter(own).collect();
        let dimension = |batch: &usize| (problem.batches[*batch], view.batches[*batch]);
        let dims: Vec<Dimension> = batches.iter().map(dimension).collect();
        Ok(TmaOperand { at, tensor: TmaTensor::of(at, tensor, matrix, &dims)?, batches })
    }

    /// Batch coordinates as C++ arguments.
    pub(super) fn batch_arguments(&self) -> String {
        self.batches.iter().map(|batch| format!(", int(batch.i{batch})")).collect()
    }
}
