//! Operands and outputs as TMA tensors.

use crate::engine::bulk::{BulkTensor, Dimension};
use crate::engine::gemm::problem::{Operand, Part, Problem};
use crate::error::{Error, Result};

/// An operand or output of the GEMM as TMA copies it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct BulkOperand {
    pub(super) at: usize,
    pub(super) tensor: BulkTensor,
    /// Batch dimensions of the tensor, innermost first.
    batches: Vec<usize>,
}

impl BulkOperand {
    /// The TMA tensor of an operand.
    ///
    /// # Errors
    /// `NotSupported` with the rule that refused.
    pub(super) fn operand(problem: &Problem<'_>, operand: &Operand) -> Result<BulkOperand> {
        BulkOperand::operand_at(problem, operand, operand.tensor)
    }

    /// The TMA tensor of `at`, which has the operand's layout.
    ///
    /// # Errors
    /// `NotSupported` with the rule that refused.
    pub(super) fn operand_at(
        problem: &Problem<'_>,
        operand: &Operand,
        at: usize,
    ) -> Result<BulkOperand> {
        let tensor = &problem.graph.tensors[at];
        let name = &tensor.name;
        if !operand.is_plain() || tensor.by_value {
            return Err(Error::not_supported(format!(
                "operand `{name}` is computed, a TMA copy loads it as it is"
            )));
        }
        let view = operand.part.axes.view(tensor);
        let (depth, rows) = ((problem.k, view.column), (operand.extent, view.row));
        let matrix = if operand.depth_packed { [depth, rows] } else { [rows, depth] };
        BulkOperand::of(problem, at, &operand.part, matrix)
    }

    /// The TMA tensor of an output.
    ///
    /// # Errors
    /// `NotSupported` with the rule that refused.
    pub(super) fn output(problem: &Problem<'_>, at: usize) -> Result<BulkOperand> {
        let view = problem.epilogue.axes.view(&problem.graph.tensors[at]);
        let matrix = [(problem.n, view.column), (problem.m, view.row)];
        BulkOperand::of(problem, at, &problem.epilogue, matrix)
    }

    fn of(
        problem: &Problem<'_>,
        at: usize,
        part: &Part,
        matrix: [Dimension; 2],
    ) -> Result<BulkOperand> {
        let tensor = &problem.graph.tensors[at];
        let view = part.axes.view(tensor);
        let own = |batch: &usize| view.batches[*batch] != 0;
        let batches: Vec<usize> = (0..view.batches.len()).rev().filter(own).collect();
        let dimension = |batch: &usize| (problem.batches[*batch], view.batches[*batch]);
        let dims: Vec<Dimension> = batches.iter().map(dimension).collect();
        Ok(BulkOperand { at, tensor: BulkTensor::of(at, tensor, matrix, &dims)?, batches })
    }

    /// Batch coordinates as C++ arguments.
    pub(super) fn batch_arguments(&self) -> String {
        self.batches.iter().map(|batch| format!(", int(batch.i{batch})")).collect()
    }
}
