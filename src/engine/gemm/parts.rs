//! Workspace arguments: which kernel writes and reads split-K partials and partial reductions.

use crate::engine::gemm::parameters::Context;
use crate::engine::gemm::partials::Parts;
use crate::kernel::Argument;

impl Context<'_> {
    /// Tensors passed to the GEMM kernel.
    pub(super) fn passed(&self) -> Vec<usize> {
        match self.tiling.split_k {
            1 => self.problem.passed(),
            _ => self.problem.passed_to_product(),
        }
    }

    /// Workspace that the GEMM kernel writes.
    pub(super) fn left(&self) -> Parts {
        match self.tiling.split_k {
            1 => Parts { sums: false, exits: 0..self.problem.exits.len() },
            _ => Parts { sums: true, exits: 0..0 },
        }
    }

    /// Workspace that the split-K reduction reads and writes.
    pub(super) fn taken(&self) -> Parts {
        Parts { sums: true, exits: 0..self.problem.exits.len() }
    }

    /// Workspace arguments; split-K partials, if any, precede partial reductions.
    pub(super) fn scratch(&self, parts: &Parts) -> impl Iterator<Item = Argument> + use<> {
        let first = usize::from(self.tiling.split_k > 1);
        let sums = parts.sums.then_some(Argument::Scratch(0));
        sums.into_iter().chain(parts.exits.clone().map(move |at| Argument::Scratch(first + at)))
    }
}
