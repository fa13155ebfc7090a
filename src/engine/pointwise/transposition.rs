//! Graphs of one tensor that is read along one dimension and written along another.

use crate::engine::access::stored;
use crate::engine::pointwise::domain::Domain;
use crate::engine::program::{GraphProgram, Source};
use crate::error::{Error, Result};
use crate::graph::CanonicalGraph;

/// Extents of both dimensions below which the engine `pointwise` does as well.
const EXTENT_MIN: i64 = 8;

/// The tensors of such a graph.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transposition {
    /// What is read, and what is written.
    pub(super) x: usize,
    pub(super) y: usize,
    /// The dimension of the domain along which `x` lies; `y` lies along the last one.
    pub(super) read: usize,
}

impl Transposition {
    /// # Errors
    /// `NotSupported` with the rule that refused.
    pub(super) fn of(
        graph: CanonicalGraph<'_>,
        program: &GraphProgram,
        domain: &Domain,
    ) -> Result<Transposition> {
        let refuse = |reason: &str| Err(Error::not_supported(reason.to_owned()));
        let read = (0..program.sources.len()).filter(|input| program.reads(*input));
        let sources: Vec<&Source> = read.map(|input| &program.sources[input]).collect();
        let ([Source::Tensor(x)], [y]) = (&sources[..], &program.outputs[..]) else {
            return refuse("reads and writes other than one tensor each");
        };
        let (x, y) = (*x, *y);
        if graph.tensors[x].by_value || stored(graph).any(|(at, _)| at != x && at != y) {
            return refuse("reads and writes other than one tensor each");
        }
        let last = domain.extents.len() - 1;
        let [of_x, of_y] = [x, y].map(|at| &domain.strides[at]);
        if [of_x, of_y].iter().any(|strides| strides.contains(&0)) {
            return refuse("an operand is broadcast");
        }
        let read = (0..last).find(|at| of_x[*at] == 1);
        let Some(read) = read.filter(|_| of_x[last] != 1 && of_y[last] == 1) else {
            return refuse("the operand is not transposed");
        };
        if domain.extents[read] < EXTENT_MIN || domain.extents[last] < EXTENT_MIN {
            return Err(Error::not_supported(format!(
                "{} x {} elements are transposed, fewer than {EXTENT_MIN} of one dimension",
                domain.extents[read], domain.extents[last]
            )));
        }
        Ok(Transposition { x, y, read })
    }
}
