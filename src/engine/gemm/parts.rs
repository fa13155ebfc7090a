//! What kernels of a problem leave behind for later ones: sums of parts of the depth, parts of
//! reductions.

use crate::engine::gemm::parameters::Context;
use crate::engine::gemm::partials::Parts;
use crate::kernel::Argument;

impl Context<'_> {
    /// The tensors that the kernel takes which multiplies.
    pub(super) fn passed(&self) -> Vec<usize> {
        match self.tiling.split_k {
            1 => self.problem.passed(),
            _ => self.problem.passed_to_product(),
        }
    }

    /// What the kernel that multiplies leaves behind.
    pub(super) fn left(&self) -> Parts {
        match self.tiling.split_k {
            1 => Parts { sums: false, exits: 0..self.problem.exits.len() },
            _ => Parts { sums: true, exits: 0..0 },
        }
    }

    /// What the kernel takes and leaves behind that adds up the parts of the depth.
    pub(super) fn taken(&self) -> Parts {
        Parts { sums: true, exits: 0..self.problem.exits.len() }
    }

    /// The arguments for parts: those of sums, where there are any, lie before those of exits.
    pub(super) fn scratch(&self, parts: &Parts) -> impl Iterator<Item = Argument> + use<> {
        let first = usize::from(self.tiling.split_k > 1);
        let sums = parts.sums.then_some(Argument::Scratch(0));
        sums.into_iter().chain(parts.exits.clone().map(move |at| Argument::Scratch(first + at)))
    }
}
