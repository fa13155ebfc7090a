//! Pointwise operations that a GEMM's kernels run on the elements of a matrix.

use crate::engine::gemm::axes::Axes;
use crate::engine::program::{GraphProgram, Source};

/// Fused pointwise operations on a matrix, a prologue or an epilogue, with the axes of their
/// tensors.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Fusion {
    pub(super) axes: Axes,
    pub(super) program: GraphProgram,
    /// What its elements are reduced to.
    pub(super) reduced: Vec<usize>,
}

impl Fusion {
    /// The tensors the program reads from memory or by value.
    pub(super) fn inputs(&self) -> impl Iterator<Item = usize> {
        let read = |(input, source): (usize, &Source)| match source {
            Source::Tensor(at) if self.program.reads(input) => Some(*at),
            _ => None,
        };
        self.program.sources.iter().enumerate().filter_map(read)
    }

    /// What an offset is computed for: the tensors that are read, and random numbers.
    pub(super) fn placed(&self) -> impl Iterator<Item = usize> {
        self.inputs().chain(self.program.positions())
    }

    /// Whether an index along an axis is read.
    pub(super) fn counts(&self, axis: usize) -> bool {
        self.program.sources.contains(&Source::Coordinate(Some(axis)))
    }
}
