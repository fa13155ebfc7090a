//! Few dimensions made of many: batches that are stepped through as one, and batches of rows.

use crate::engine::gemm::axes::stride;
use crate::engine::gemm::fusion::Fusion;
use crate::graph::CanonicalGraph;

/// The axes of a GEMM's fusions: those of both prologues and of the epilogue.
pub(super) struct Collapse<'a> {
    pub(super) graph: CanonicalGraph<'a>,
    /// Extents of the axes.
    pub(super) dims: &'a [i64],
    pub(super) fusions: [Fusion; 3],
    pub(super) m: i64,
}

impl Collapse<'_> {
    /// The strides of every tensor in memory, and of random numbers, along two axes.
    fn strides(&self, fusion: &Fusion, axes: [usize; 2]) -> Vec<[i64; 2]> {
        let stored = |at: &usize| {
            let tensor = &self.graph.tensors[*at];
            !tensor.is_virtual && !tensor.by_value
        };
        let tensors = fusion.inputs().chain(fusion.program.outputs.iter().copied());
        let tensors = tensors.chain(fusion.reduced.iter().copied()).filter(stored);
        let tensors = tensors.chain(fusion.program.positions());
        tensors.map(|at| axes.map(|axis| stride(&self.graph.tensors[at], axis))).collect()
    }

    fn counts(&self, axis: usize) -> bool {
        self.fusions.iter().any(|fusion| fusion.counts(axis))
    }

    /// Joins batch dimensions that every tensor steps through as one.
    pub(super) fn batches(&mut self, overrides: [Option<usize>; 3]) {
        let mut batches: Vec<Vec<usize>> = Vec::new();
        for axis in (0..self.dims.len() - 2).filter(|axis| self.dims[*axis] != 1) {
            let combines = batches.last().and_then(|axes| axes.last()).is_some_and(|last| {
                let axes = [*last, axis];
                let own = overrides.iter().flatten();
                let own = own.map(|at| axes.map(|axis| stride(&self.graph.tensors[*at], axis)));
                let mut all =
                    self.fusions.iter().flat_map(|fusion| self.strides(fusion, axes)).chain(own);
                !axes.iter().any(|axis| self.counts(*axis))
                    && all.all(|[outer, inner]| inner.checked_mul(self.dims[axis]) == Some(outer))
            });
            match batches.last_mut().filter(|_| combines) {
                Some(axes) => axes.push(axis),
                None => batches.push(vec![axis]),
            }
        }
        for fusion in &mut self.fusions {
            fusion.axes.batches.clone_from(&batches);
        }
    }

    /// Makes rows of the innermost batches where B is the same for all of them.
    pub(super) fn batches_into_rows(&mut self) {
        while let Some(axes) = self.fusions[0].axes.batches.last().cloned() {
            let last = *axes.last().expect("a batch dimension has an axis");
            let row = self.fusions[0].axes.rows.first().copied();
            let counted = axes.iter().copied().chain(row).any(|axis| self.counts(axis));
            let [a, b, epilogue] = &self.fusions;
            let shared = self.strides(b, [last; 2]).iter().all(|[stride, _]| *stride == 0);
            let combines = row.is_none()
                || [a, epilogue].into_iter().all(|fusion| {
                    let innermost = *fusion.axes.rows.last().expect("A has rows");
                    let mut pairs = self.strides(fusion, [last, innermost]).into_iter();
                    pairs.all(|[outer, inner]| inner.checked_mul(self.m) == Some(outer))
                });
            if counted || !shared || !combines {
                break;
            }
            self.m = axes.iter().map(|axis| self.dims[*axis]).fold(self.m, i64::saturating_mul);
            for fusion in &mut self.fusions {
                fusion.axes.batches.pop();
            }
            for at in [0, 2] {
                let rows = &mut self.fusions[at].axes.rows;
                *rows = axes.iter().copied().chain(rows.iter().copied()).collect();
            }
        }
    }
}
