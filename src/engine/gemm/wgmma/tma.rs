//! Operands and outputs as TMA tensors.

use crate::engine::gemm::fusion::Fusion;
use crate::engine::gemm::problem::{Operand, Problem};
use crate::engine::gemm::wgmma::window::{BatchDimension, Depth, Tiles, tiles};
use crate::engine::tma::{Dimension, TmaTensor};
use crate::error::{Error, Result};

/// An operand or output of the GEMM as TMA copies it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct TmaOperand {
    pub(super) at: usize,
    pub(super) tensor: TmaTensor,
    /// Batch dimensions of the tensor, innermost first; none where `tiles` count them.
    batches: Vec<BatchDimension>,
    /// Where a tile is, if not where rows and K lead.
    pub(super) tiles: Option<Tiles>,
}

impl TmaOperand {
    /// The TMA tensor of an operand, of a convolution with this `depth`.
    ///
    /// # Errors
    /// `NotSupported` with the rule that refused.
    pub(super) fn operand(
        problem: &Problem<'_>,
        operand: &Operand,
        depth: Option<&Depth>,
    ) -> Result<TmaOperand> {
        let at = operand.tensor;
        let tensor = &problem.graph.tensors[at];
        check_loaded(problem, operand, at)?;
        let view = operand.prologue.axes.view(tensor);
        let (rows, ks) = ((operand.extent, view.row), (operand.k_major, view.column));
        let placed = match (&operand.window, depth) {
            (Some(window), _) => Some(tiles(problem, operand, window, depth)?),
            (None, Some(depth)) => {
                let batches = BatchDimension::all(problem, &operand.prologue.axes, tensor);
                depth.even((at, tensor), rows, ks, &batches)?
            }
            (None, None) => None,
        };
        match placed {
            Some((tensor, tiles)) => {
                Ok(TmaOperand { at, tensor, batches: Vec::new(), tiles: Some(tiles) })
            }
            None => TmaOperand::operand_at(problem, operand, at),
        }
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
        check_loaded(problem, operand, at)?;
        let view = operand.prologue.axes.view(&problem.graph.tensors[at]);
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
        let batches = BatchDimension::all(problem, &fusion.axes, tensor);
        let dims: Vec<Dimension> = batches.iter().map(|batch| batch.dimension).collect();
        let tensor = TmaTensor::of(at, tensor, matrix, &dims)?;
        Ok(TmaOperand { at, tensor, batches, tiles: None })
    }

    /// Coordinates of the tile at `row` and `k`, or of an atom of an MN-major tile, as C++
    /// arguments.
    pub(super) fn arguments(&self, k_major: bool) -> Vec<String> {
        let matrix = if k_major { ["k", "row"] } else { ["row + atom * Tile::ATOM", "k"] };
        let batches = self.batches.iter().map(BatchDimension::argument);
        let own = || matrix.map(str::to_owned).into_iter().chain(batches).collect();
        self.tiles.as_ref().map_or_else(own, |tiles| tiles.arguments.clone())
    }

    /// Batch coordinates as C++ arguments.
    pub(super) fn batch_arguments(&self) -> String {
        self.batches.iter().map(|batch| format!(", {}", batch.argument())).collect()
    }
}

/// Checks that an operand is loaded as it is.
fn check_loaded(problem: &Problem<'_>, operand: &Operand, at: usize) -> Result<()> {
    let tensor = &problem.graph.tensors[at];
    match !operand.is_plain() || tensor.by_value {
        true => Err(Error::not_supported(format!(
            "operand `{}` is computed, a TMA copy loads it as it is",
            tensor.name
        ))),
        false => Ok(()),
    }
}
