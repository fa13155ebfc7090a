//! A network as what is executed: graphs, loops of them and branches, and where tensors are.

use std::collections::HashMap;

use crate::dtype::DType;
use crate::graph::OperationGraph;
use crate::loops::ladder::Ladder;
use crate::loops::layer::Loop;
use crate::loops::loop_operation::LoopOperation;
use crate::loops::place::Places;

/// A network, lowered.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// The graphs that steps run; their tensors have places.
    pub(crate) graphs: Vec<OperationGraph>,
    /// The steps outside of loops.
    pub(crate) steps: Vec<Step>,
    /// Where tensors are.
    pub(crate) places: Places,
    /// Of tensors that are elements of others.
    pub(crate) elements: HashMap<i64, Along>,
    /// Bytes of the largest element that may have to be cleared, or that does not exist.
    pub(crate) zero_bytes: u64,
    /// Types of the tensors that the host reads.
    pub(crate) numbers: HashMap<i64, DType>,
    /// How loops are run.
    pub(crate) ladder: Ladder,
}

impl Program {
    /// A loop that is an operation of a graph, given by its position.
    pub(crate) fn loop_of(&self, graph: usize) -> Option<&LoopOperation> {
        let written = |uid: i64| {
            let mut outputs = self.graphs[graph].operations().iter().flat_map(|of| &of.outputs);
            outputs.any(|other| *other == uid)
        };
        self.ladder.operations.iter().find(|of| written(of.y))
    }
}

/// Elements of a tensor along an axis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Along {
    /// How many there are.
    pub(crate) extent: i64,
    /// Distance of neighbours in bytes.
    pub(crate) step: u64,
    /// Bytes from the beginning of an element to its end.
    pub(crate) bytes: u64,
}

/// Something that is executed.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// A graph, given by its position.
    Run(usize),
    /// The trips of a loop.
    Loop(LoopStep),
    /// One of two branches.
    Conditional(ConditionalStep),
    /// A loop that the graph before did.
    Looped(LoopOperation),
    /// The trips of a loop that the device goes through.
    While(WhileStep),
}

/// A loop that the device goes through: what its trips read and write does not depend on the trip.
#[derive(Debug, Clone)]
pub(crate) struct WhileStep {
    /// The loop.
    pub(crate) of: Loop,
    /// The tensor that says whether another trip is made.
    pub(crate) go: i64,
    /// The tensor that has the number of trips so far.
    pub(crate) trip: i64,
    /// The tensor that has the most trips.
    pub(crate) count: Option<i64>,
    /// The tensor that is true in all trips that are made.
    pub(crate) condition: Option<i64>,
    /// A trip, and what decides whether there is another one.
    pub(crate) body: Vec<Step>,
    /// The least extent that the loop iterates over.
    pub(crate) least_extent: i64,
    /// The least length of its outputs.
    pub(crate) least_length: i64,
}

/// A loop.
#[derive(Debug, Clone)]
pub(crate) struct LoopStep {
    /// The loop.
    pub(crate) of: Loop,
    /// The tensor that has the number of trips.
    pub(crate) count: Option<i64>,
    /// The tensor that is true in all trips that are made, and false in the one behind them.
    pub(crate) condition: Option<i64>,
    /// How many trips are made before their conditions are read: trips past the end write nothing
    /// that remains.
    pub(crate) ahead: i64,
    /// What the condition needs.
    pub(crate) test: Vec<Step>,
    /// The rest of a trip.
    pub(crate) body: Vec<Step>,
    /// The least extent that the loop iterates over.
    pub(crate) least_extent: i64,
    /// Outputs that trips write.
    pub(crate) stacked: Vec<Stacked>,
}

/// A loop output that trips write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stacked {
    /// The output.
    pub(crate) y: i64,
    /// Distance of its elements in bytes.
    pub(crate) step: u64,
    /// How many elements it has.
    pub(crate) length: i64,
    /// Bytes of an element.
    pub(crate) bytes: u64,
    /// The graph that moves [`MOVED_FROM`], 0, to an element, [`MOVED_TO`]; none where a copy does.
    pub(crate) clear: Option<usize>,
    /// For an order that follows from the number of trips where that is not known before them.
    pub(crate) turned: Option<Turned>,
}

/// A loop output in the order of its trips.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turned {
    /// Where trips write it.
    pub(crate) stage: i64,
    /// Distance of its elements in bytes.
    pub(crate) step: u64,
    /// The graph that moves an element of it to one of the output; none where a copy does.
    pub(crate) graph: Option<usize>,
}

/// The input of a graph that moves an element.
pub(crate) const MOVED_FROM: i64 = 1;
/// The output of a graph that moves an element.
pub(crate) const MOVED_TO: i64 = 2;

/// A conditional.
#[derive(Debug, Clone)]
pub(crate) struct ConditionalStep {
    /// Its first result.
    pub(crate) y: i64,
    /// The tensor that decides.
    pub(crate) condition: i64,
    /// The steps where it is true.
    pub(crate) then: Vec<Step>,
    /// The steps where it is false.
    pub(crate) otherwise: Vec<Step>,
}
