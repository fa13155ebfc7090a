//! Graphs of one tensor that is read along one dimension and written along another.

use crate::engine::access::stored;
use crate::engine::pointwise::domain::Domain;
use crate::engine::program::{GraphProgram, Source};
use crate::error::{Error, Result};
use crate::graph::CanonicalGraph;

/// Extents of both dimensions below which the engine `pointwise` does as well.
const EXTENT_MIN: i64 = 8;

/// Such a graph.
#[derive(Debug, Clone)]
pub(super) struct Transposition {
    pub(super) program: GraphProgram,
    /// What is read, and what is written.
    pub(super) x: usize,
    pub(super) y: usize,
    /// The dimension of the domain along which `x` lies; `y` lies along the last one.
    pub(super) read: usize,
}

impl Transposition {
    /// # Errors
    /// `NotSupported` with the rule that refused.
    pub(super) fn of(graph: CanonicalGraph<'_>, domain: &Domain) -> Result<Transposition> {
        let refuse = |reason: &str| Err(Error::not_supported(reason.to_owned()));
        let others = "reads and writes other than one tensor each";
        let in_memory: Vec<usize> = stored(graph).map(|(at, _)| at).collect();
        let (x, y) = match in_memory[..] {
            [one, other] if !graph.is_written(one) && graph.is_written(other) => (one, other),
            [one, other] if graph.is_written(one) && !graph.is_written(other) => (other, one),
            _ => return refuse(others),
        };
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
        // Neither values nor coordinates or random numbers besides.
        let program = GraphProgram::whole(graph);
        let sources = program.sources.iter().enumerate();
        let mut sources = sources.filter(|(input, _)| program.reads(*input));
        match (sources.next(), sources.next(), &program.outputs[..]) {
            (Some((_, Source::Tensor(own))), None, [written]) if (*own, *written) == (x, y) => {}
            _ => return refuse(others),
        }
        Ok(Transposition { program, x, y, read })
    }
}
