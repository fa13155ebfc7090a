//! Steps of a primitive: graphs, and where their tensors lie.

use crate::graph::OperationGraph;
use crate::onednn::argument::Arg;

/// Alignment of tensors in the workspace and in a primitive's own memory, in bytes.
pub(super) const ALIGNMENT: u64 = 256;

/// Where a tensor of a step lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Home {
    /// In the memory of an argument, so many bytes from its start.
    Argument(Arg, u64),
    /// In the primitive's own memory, so many bytes from its start.
    Scratch(u64),
}

/// A graph and where its tensors lie.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Step {
    /// The graph.
    pub graph: OperationGraph,
    /// The place of every input and output, by uid.
    pub homes: Vec<(i64, Home)>,
}
