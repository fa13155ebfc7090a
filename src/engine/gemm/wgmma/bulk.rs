//! Operands and outputs as bulk copies take them.

use crate::engine::bulk::{BulkTensor, Dimension};
use crate::engine::gemm::problem::{Operand, Part, Problem};
use crate::error::{Error, Result};

/// An operand or output of the GEMM as TMA copies it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct BulkOperand {
    pub(super) at: usize,
    pub(super) tensor: BulkTensor,
    /// The batch dimensions that the tensor has, the innermost first.
    batches: Vec<usize>,
}

impl BulkOperand {
    /// An operand of the product.
    ///
    /// # Errors
    /// `NotSupported` with the rule that refused.
    pub(super) fn operand(problem: &Problem<'_>, operand: &Operand) -> Result<BulkOperand> {
        BulkOperand::operand_at(problem, operand, operand.tensor)
    }

    /// A tensor in place of an operand that lies as it does.
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
                "operand `{name}` is computed, a bulk copy loads it as it is"
            )));
        }
        let view = operand.part.axes.view(tensor);
        let (depth, rows) = ((problem.k, view.column), (operand.extent, view.row));
        let matrix = if operand.depth_packed { [depth, rows] } else { [rows, depth] };
        BulkOperand::of(problem, at, &operand.part, matrix)
    }

    /// What is stored.
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

    /// The coordinates behind those in a matrix, as arguments.
    pub(super) fn batch_arguments(&self) -> String {
        self.batches.iter().map(|batch| format!(", int(batch.i{batch})")).collect()
    }
}
