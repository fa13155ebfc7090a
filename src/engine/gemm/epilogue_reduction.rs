//! Epilogue reductions: reductions of the epilogue's results, fused into the GEMM as partials per
//! warp tile. What reads their results is computed where the partials are combined (`finish`).
//! Sums of an operand along K (`operand_sum`) have partials too, one for each split of K.

use std::collections::BTreeSet;

use crate::engine::access::beside_nothing;
use crate::engine::gemm::axes::Axes;
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, Op, Operation, Reduction};

/// A reduction of a tensor that the epilogue computes, or of an operand along K.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct EpilogueReduction {
    pub(super) op: Reduction,
    /// The reduced tensor; `result` is what it is reduced to.
    pub(super) operand: usize,
    pub(super) reduced: Reduced,
    pub(super) result: usize,
    pub(super) kept: Kept,
    /// Whether each batch has its own results.
    pub(super) keeps_batches: bool,
}

/// Where a reduction has its values from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Reduced {
    Epilogue,
    /// Elements of A along K: a result for each row.
    A,
    /// Elements of B along K: a result for each column.
    B,
}

/// Which dimension of the matrix a result keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kept {
    Rows,
    Columns,
    Neither,
}

impl Kept {
    /// The name in templates.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kept::Rows => "rows",
            Kept::Columns => "columns",
            Kept::Neither => "neither",
        }
    }
}

/// Reductions of a graph, each with its operand and its result.
pub(super) type Reductions = Vec<(Reduction, [usize; 2])>;

/// The reductions of a graph around the GEMM result `c`: of the epilogue's values, and of the
/// GEMM's operands.
///
/// # Errors
/// `NotSupported` when the operand is neither.
pub(super) fn reductions_of(
    graph: CanonicalGraph<'_>,
    operands: [usize; 2],
    c: usize,
) -> Result<[Reductions; 2]> {
    let reduction = |operation: &Operation| match operation.op {
        Op::Reduction(op) => {
            Some((op, [operation.inputs[0], operation.outputs[0]].map(|uid| uid as usize)))
        }
        _ => None,
    };
    let of_epilogue = |(_, [operand, _]): &(Reduction, [usize; 2])| graph.is_written(*operand);
    let found = graph.operations.iter().filter_map(reduction);
    let (of_epilogue, of_operands): (Reductions, Reductions) = found.partition(of_epilogue);
    for (_, [_, result]) in of_epilogue.iter().chain(&of_operands) {
        if graph.tensors[c].is_empty() && !graph.tensors[*result].is_empty() {
            return Err(beside_nothing(&graph.tensors[*result]));
        }
    }
    let is_value = |at: usize| graph.tensors[at].dims == graph.tensors[c].dims;
    let strange = of_epilogue.iter().filter(|(_, [operand, _])| !is_value(*operand));
    let others = of_operands.iter().filter(|(_, [operand, _])| !operands.contains(operand));
    if let Some((_, [operand, _])) = strange.chain(others).next() {
        let name = &graph.tensors[*operand].name;
        return Err(Error::not_supported(format!(
            "`{name}` is reduced, which is neither a result of the epilogue nor an operand"
        )));
    }
    Ok([of_epilogue, of_operands])
}

impl EpilogueReduction {
    /// A reduction of a matrix with these axes. Where batches are phases of an image too, its
    /// results are of all phases.
    ///
    /// # Errors
    /// `NotSupported` when both rows and columns are kept, only some of the batches, or rows of
    /// phases.
    pub(super) fn new(
        graph: CanonicalGraph<'_>,
        (op, [operand, result]): (Reduction, [usize; 2]),
        axes: &Axes,
        has_phases: bool,
    ) -> Result<EpilogueReduction> {
        let [from, to] = [operand, result].map(|at| &graph.tensors[at].dims);
        let name = &graph.tensors[result].name;
        let is_kept = |axis: &usize| from[*axis] == to[*axis];
        let mut batches: BTreeSet<bool> = axes.batches.iter().flatten().map(is_kept).collect();
        batches.extend(has_phases.then_some(false));
        if batches.len() > 1 {
            return Err(Error::not_supported(format!("`{name}` reduces some of the batches")));
        }
        let keeps = |axes: &[usize]| axes.iter().all(is_kept);
        let kept = match (keeps(&axes.rows), keeps(&axes.columns)) {
            (true, false) => Kept::Rows,
            (false, true) => Kept::Columns,
            (false, false) => Kept::Neither,
            // The reduced dimension has extent 1, if there is one.
            (true, true) if axes.columns.is_empty() => Kept::Rows,
            (true, true) if axes.rows.is_empty() => Kept::Columns,
            (true, true) => {
                let text = format!("`{name}` reduces neither rows nor columns");
                return Err(Error::not_supported(text));
            }
        };
        if has_phases && kept == Kept::Rows {
            let text = format!("`{name}` keeps rows next to phases of a strided image");
            return Err(Error::not_supported(text));
        }
        Ok(EpilogueReduction {
            op,
            operand,
            reduced: Reduced::Epilogue,
            result,
            kept,
            keeps_batches: !batches.contains(&false),
        })
    }
}
