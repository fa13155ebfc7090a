//! What is computed of the results of epilogue reductions, element by element, by the kernel that
//! combines their partials: what a normalisation makes of its sums.

use std::collections::BTreeSet;

use crate::engine::program::{GraphProgram, Source, ancestors};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, Reduction};

/// The program behind the reductions of a graph, whose GEMM gives `c`: its inputs are their
/// results and other tensors of their dimensions, its outputs what is stored of them. What is
/// stored beside, in these dimensions, is one of its outputs too; where nothing reads a result, the
/// program is empty.
///
/// # Errors
/// `NotSupported` when a result is read by more than pointwise operations of its dimensions, or
/// results differ in them.
pub(super) fn finish_of(
    graph: CanonicalGraph<'_>,
    c: usize,
    reductions: &[(Reduction, [usize; 2])],
) -> Result<GraphProgram> {
    let dims = |at: usize| &graph.tensors[at].dims;
    let results: Vec<usize> = reductions.iter().map(|(_, [_, result])| *result).collect();
    let mut behind: BTreeSet<usize> = results.iter().copied().collect();
    let mut outputs = Vec::new();
    for operation in graph.operations {
        let Some(read) = operation.inputs.iter().find(|uid| behind.contains(&(**uid as usize)))
        else {
            continue;
        };
        let output = operation.outputs[0] as usize;
        let has_dims = results.iter().all(|result| dims(*result) == dims(output));
        if operation.as_pointwise().is_none() || !has_dims {
            let name = &graph.tensors[*read as usize].name;
            return Err(Error::not_supported(format!(
                "`{name}` is read, a result of an epilogue reduction"
            )));
        }
        behind.insert(output);
        outputs.push(output);
    }
    if outputs.is_empty() {
        return Ok(GraphProgram::of(graph, [].into_iter(), &[]));
    }
    let beside = graph.operations.iter().filter(|of| of.as_pointwise().is_some());
    let beside = beside
        .map(|of| of.outputs[0] as usize)
        .filter(|at| !behind.contains(at) && dims(*at) == dims(results[0]) && dims(*at) != dims(c));
    outputs.extend(beside.collect::<Vec<_>>());
    outputs.retain(|at| !graph.tensors[*at].is_virtual);
    let operations = ancestors(graph, &outputs);
    let operations = operations.iter().map(|index| &graph.operations[*index]);
    if let Some(drawn) = operations.clone().find(|of| of.as_pointwise().is_none()) {
        let text = format!("{} behind an epilogue reduction", drawn.op.name());
        return Err(Error::not_supported(text));
    }
    Ok(GraphProgram::of(graph, operations, &outputs))
}

/// The tensors of a program, stored ones and virtual ones.
pub(super) fn tensors(program: &GraphProgram) -> impl Iterator<Item = usize> + '_ {
    let sources = program.sources.iter().filter_map(|source| match source {
        Source::Tensor(at) => Some(*at),
        Source::Coordinate(_) | Source::Position(_) => None,
    });
    sources.chain(program.outputs.iter().copied())
}
