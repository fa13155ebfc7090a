//! Graphs of one operation, for engines that run nothing beside theirs.

use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, Op, Operation};

/// The only operation of a graph, which is of an engine's own kind.
///
/// # Errors
/// `NotSupported` where there are others, or none of that kind; `name` says which one that is.
pub(super) fn alone<'a, T>(
    graph: CanonicalGraph<'a>,
    own: impl Fn(&'a Op) -> Option<&'a T>,
    name: &str,
) -> Result<(&'a Operation, &'a T)> {
    let mut found = graph.operations.iter().filter_map(|of| Some((of, own(&of.op)?)));
    match (found.next(), graph.operations) {
        (Some(found), [_]) => Ok(found),
        (Some(_), _) => {
            let text = format!("a {name} runs by itself, apart from other operations");
            Err(Error::not_supported(text))
        }
        (None, _) => Err(Error::not_supported(format!("the graph has no {name}"))),
    }
}
