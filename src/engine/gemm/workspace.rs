//! Workspace arguments: which kernel writes and reads split-K partials and partial reductions.

use crate::engine::gemm::context::Context;
use crate::engine::gemm::partials::Partials;
use crate::kernel::Argument;

impl Context<'_> {
    /// Tensors passed to the GEMM kernel.
    pub(super) fn passed(&self) -> Vec<usize> {
        match self.tiling.split_k {
            1 => self.problem.passed(),
            _ => self.problem.passed_to_gemm(),
        }
    }

    /// Workspace that the GEMM kernel writes.
    pub(super) fn gemm_workspace(&self) -> Partials {
        match self.tiling.split_k {
            1 => Partials { accumulators: false, reductions: 0..self.problem.reductions.len() },
            _ => Partials { accumulators: true, reductions: self.problem.operand_sums() },
        }
    }

    /// Workspace that the split-K reduction reads and writes.
    pub(super) fn reduction_workspace(&self) -> Partials {
        Partials { accumulators: true, reductions: self.problem.epilogue_reductions() }
    }

    /// Workspace arguments; split-K partials, if any, precede partial reductions.
    pub(super) fn scratch(&self, partials: &Partials) -> impl Iterator<Item = Argument> + use<> {
        let first = usize::from(self.tiling.split_k > 1);
        let accumulators = partials.accumulators.then_some(Argument::Scratch(0));
        let reductions = partials.reductions.clone().map(move |at| Argument::Scratch(first + at));
        accumulators.into_iter().chain(reductions)
    }
}
