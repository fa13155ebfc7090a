//! Problems: what manifests and the command line plan and run.

#[cfg(feature = "sim")]
mod clocks;
pub(in crate::plan) mod tensors;
pub(in crate::plan) mod trial;

use std::path::Path;
use std::sync::Arc;

use crate::documents::{self, Document};
use crate::error::{Error, Result};
use crate::frontend::{FrontEnd, Values};
use crate::graph::OperationGraph;
use crate::plan::problem::tensors::{read_values_beside, write_values};

/// A computation of any front-end, as operation graphs that run in sequence.
///
/// Its values are the state that [`FrontEnd`] describes: the outputs of a graph, stored, are inputs
/// of later graphs.
#[derive(Debug, Clone)]
pub struct Problem {
    front_end: Arc<dyn FrontEnd>,
}

impl Problem {
    /// The problem that a front-end describes.
    pub fn new(front_end: impl FrontEnd + 'static) -> Problem {
        Problem { front_end: Arc::new(front_end) }
    }

    /// Reads a problem document (`docs/problem-format.md`); its only key decides the front-end.
    ///
    /// # Errors
    /// `BadParam` with line and column for malformed JSON, for an unknown key, and as the front-end
    /// reports, for instance [`OperationGraph::from_json`]; `NotSupported` for a network with
    /// loops.
    pub fn from_json(text: &str) -> Result<Problem> {
        match documents::read(text)? {
            Document::Graphs(front_end) => Ok(Problem { front_end }),
            Document::Loops(_) => Err(Error::not_supported(
                "a network with loops is no sequence of graphs: `kiln run`, `kiln engines` and \
                 manifests take it, `Kiln::build_loops` plans it",
            )),
        }
    }

    /// The operation graphs in execution order.
    pub fn graphs(&self) -> Vec<&OperationGraph> {
        self.front_end.graphs()
    }

    /// The operation graph, if there is only one.
    ///
    /// # Errors
    /// `BadParam` if there are several.
    pub fn only_graph(&self) -> Result<&OperationGraph> {
        match self.graphs()[..] {
            [graph] => Ok(graph),
            ref graphs => Err(Error::bad_param(format!(
                "the problem is {} graphs, one after the other: expected one",
                graphs.len()
            ))),
        }
    }

    /// Reads the values of the inputs from a safetensors file, which may hold outputs as well.
    ///
    /// # Errors
    /// As [`read_values`](crate::plan::read_values), and `BadParam` for values that the front-end
    /// refuses.
    pub fn read_values(&self, path: &Path) -> Result<Values> {
        let (named, outputs) = (self.front_end.named_inputs(), self.front_end.named_outputs());
        self.front_end.initial_values(read_values_beside(path, named.iter(), &outputs)?)
    }

    /// Reproducible random values of the inputs: lengths, pages and windows are in range, states of
    /// a network neither vanish nor saturate.
    ///
    /// # Errors
    /// `Io` when host memory is exhausted.
    pub fn random_values(&self, seed: u64) -> Result<Values> {
        self.front_end.initial_values(self.front_end.random_values(seed)?)
    }

    /// Values of the inputs of a graph, given by its position.
    pub fn inputs(&self, graph: usize, values: &Values) -> Values {
        self.front_end.inputs(graph, values)
    }

    /// Stores the outputs of a graph, given by its position.
    pub fn store(&self, graph: usize, outputs: &Values, values: &mut Values) {
        self.front_end.store(graph, outputs, values);
    }

    /// Writes the outputs to a safetensors file, once those of every graph are stored.
    ///
    /// # Errors
    /// As [`write_values`].
    pub fn write_values(&self, path: &Path, values: &Values) -> Result<()> {
        let named = self.front_end.named_outputs();
        write_values(path, named.iter(), &self.front_end.named_values(values))
    }
}
