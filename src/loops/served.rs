//! A network lowered to graphs that are served, whatever serves them.

use crate::error::{ErrorKind, Result};
use crate::graph::OperationGraph;
use crate::loops::ladder::Refusals;
use crate::loops::network::Network;
use crate::loops::program::Program;

impl Network {
    /// Lowers the network and serves each of its graphs: a loop that is an operation which cannot
    /// be served (`NotSupported`) is none. `refused` has steps of the ladder that are not taken.
    ///
    /// # Errors
    /// As [`Network::lowered`] and `serve`.
    pub(crate) fn served<T>(
        &self,
        mut refused: Refusals,
        serve: impl Fn(&OperationGraph) -> Result<T>,
    ) -> Result<(Program, Vec<T>)> {
        'lower: loop {
            let program = self.lowered(&refused)?;
            let mut all = Vec::new();
            for (at, graph) in program.graphs.iter().enumerate() {
                match (serve(graph), program.loop_of(at)) {
                    (Ok(served), _) => all.push(served),
                    (Err(error), Some(own)) if error.kind() == ErrorKind::NotSupported => {
                        refused.insert((own.of, own.step), error.to_string());
                        continue 'lower;
                    }
                    (Err(error), _) => return Err(error),
                }
            }
            return Ok((program, all));
        }
    }
}
