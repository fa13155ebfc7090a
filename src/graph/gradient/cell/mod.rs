//! The derivative of a cell: a cell that runs through the steps in the opposite order.
//!
//! A step of the derivative begins with the GEMMs of the transposed weights by the gradients of the
//! step behind it, which give the gradient of the output, and runs the stages backwards: a GEMM of
//! the cell, or a layer norm, begins a further stage. What it needs of the forward step it reads,
//! or computes again from what it reads, by the same programs; a minimum cut of those chooses the
//! fewest values.

mod cell_vjp;
mod differentiation;
mod saved;
mod writing;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::cell::{Cell, CellValue, LayerNormStatistics};
pub(in crate::graph) use crate::graph::gradient::cell::cell_vjp::{CellVjp, Given, Written};
use crate::graph::gradient::cell::differentiation::Differentiation;

impl Cell {
    /// The derivative of the cell, in which gradients and what is saved have this type. That of a
    /// projected cell is one of the same cell without the projection: of `y` and the weights
    /// multiplied by it.
    ///
    /// # Errors
    /// `NotSupported` for a cell with transposed weights.
    pub(in crate::graph) fn vjp(&self, dtype: DType, given: Given) -> Result<CellVjp> {
        if self.is_transposed() || self.outputs() > 1 {
            let text = format!("cell {}: no gradient with transposed weights", self.name);
            return Err(Error::not_supported(text));
        }
        Differentiation::of(self, dtype).run(given)
    }

    fn name_of(&self, value: CellValue) -> String {
        let recurrent = |at: usize| {
            let mut gates = self.gemms().flat_map(|(_, gemm)| &gemm.gates);
            format!("r_{}", gates.nth(at).map_or("", String::as_str))
        };
        match value {
            CellValue::Gate(at) => format!("x_{}", self.gates[at]),
            CellValue::Recurrent(at) => recurrent(at),
            CellValue::State(at) => self.states[at].clone(),
            CellValue::Parameter(at) => self.parameters[at].clone(),
            CellValue::RowInput(at) => self.row_inputs[at].clone(),
            CellValue::UnitInput(at) => self.unit_inputs[at].clone(),
            CellValue::Mean { stage, at } => format!("{}_mean", self.statistics(stage, at).name),
            CellValue::InverseDeviation { stage, at } => {
                format!("{}_inv", self.statistics(stage, at).name)
            }
            CellValue::Result { stage, at } => {
                let program = &self.stages[stage].program;
                program.name(program.outputs()[at]).to_owned()
            }
        }
    }

    fn statistics(&self, stage: usize, at: usize) -> &LayerNormStatistics {
        &self.stages[stage].statistics[at]
    }
}
