//! Problem documents of every kind: what the command line and manifests read.

pub(in crate::plan) mod random;
pub(in crate::plan) mod tensors;
pub(in crate::plan) mod trial;
pub(in crate::plan) mod values;

use std::path::Path;

use serde_json::{Map, Value};

use crate::attention::{AttentionCall, sdpa_from_json};
use crate::error::{Error, Result};
use crate::graph::OperationGraph;
use crate::plan::problem::tensors::{read_values, write_values};
use crate::plan::problem::values::Values;
use crate::rnn::Network;

/// A problem: an operation graph, or what lowers to one or several that run one after the other.
///
/// Its values are those of its graphs' tensors, or what the tensors of a layer hold; a graph's
/// outputs, stored, are there for the graphs behind it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Problem {
    /// A graph as it stands.
    Graph(OperationGraph),
    /// A recurrent network; its tensors have names of their own.
    Rnn(Box<Network>),
    /// An attention layer; its tensors have names of their own.
    Mha(Box<AttentionCall>),
}

impl Problem {
    /// Reads a document whose one key is `graph`, `rnn`, `sdpa` or `mha`.
    ///
    /// # Errors
    /// `BadParam` with line and column for malformed JSON, and for another key; further as
    /// [`OperationGraph::from_json`], [`Network::from_json`], [`sdpa_from_json`] and
    /// [`AttentionCall::from_json`].
    pub fn from_json(text: &str) -> Result<Problem> {
        let malformed = |what: String| Error::bad_param(format!("malformed problem: {what}"));
        let document: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
        let has = |key: &str| document.contains_key(key);
        if has("rnn") {
            return Ok(Problem::Rnn(Box::new(Network::from_json(text)?)));
        }
        if has("mha") {
            return Ok(Problem::Mha(Box::new(AttentionCall::from_json(text)?)));
        }
        if has("sdpa") {
            return Ok(Problem::Graph(sdpa_from_json(text)?));
        }
        match document.keys().next() {
            Some(key) if !has("graph") => {
                let kinds = "`graph`, `rnn`, `sdpa`, `mha`";
                Err(malformed(format!("unknown key `{key}`, expected one of {kinds}")))
            }
            _ => Ok(Problem::Graph(OperationGraph::from_json(text)?)),
        }
    }

    /// What is computed, in this order.
    pub fn graphs(&self) -> Vec<&OperationGraph> {
        match self {
            Problem::Graph(graph) => vec![graph],
            Problem::Rnn(network) => vec![&network.graph],
            Problem::Mha(call) => call.layer.stages.iter().map(|stage| &stage.graph).collect(),
        }
    }

    /// What is computed, where it is one graph.
    ///
    /// # Errors
    /// `BadParam` where it is several.
    pub fn only_graph(&self) -> Result<&OperationGraph> {
        match self.graphs()[..] {
            [graph] => Ok(graph),
            ref graphs => Err(Error::bad_param(format!(
                "the problem is {} graphs, one after the other: expected one",
                graphs.len()
            ))),
        }
    }

    /// The values of the inputs, from a safetensors file.
    ///
    /// # Errors
    /// As [`read_values`].
    pub fn read_values(&self, path: &Path) -> Result<Values> {
        match self {
            Problem::Graph(graph) => read_values(path, graph.inputs()),
            Problem::Rnn(network) => {
                let inputs = network.named_inputs();
                network.graph_values(&read_values(path, inputs.iter())?)
            }
            Problem::Mha(call) => {
                let inputs = call.named_inputs();
                call.memory(&read_values(path, inputs.iter())?)
            }
        }
    }

    /// Reproducible values of the inputs: states that neither vanish nor saturate, lengths, pages
    /// and windows that are in range, and a reset now and then.
    ///
    /// # Errors
    /// `Io` when there is not enough host memory.
    pub fn random_values(&self, seed: u64) -> Result<Values> {
        match self {
            Problem::Graph(graph) => random::random_values(graph, seed),
            Problem::Rnn(network) => network.graph_values(&random::of_network(network, seed)?),
            Problem::Mha(call) => call.memory(&random::of_layer(call, seed)?),
        }
    }

    /// The values of a graph's inputs, by its position.
    pub fn inputs(&self, graph: usize, values: &Values) -> Values {
        match self {
            Problem::Mha(call) => call.inputs(&call.layer.stages[graph], values),
            _ => values.clone(),
        }
    }

    /// Keeps the values of a graph's outputs.
    pub fn store(&self, graph: usize, outputs: &Values, values: &mut Values) {
        match self {
            Problem::Mha(call) => call.store(&call.layer.stages[graph], outputs, values),
            _ => values.extend(outputs.iter().map(|(uid, output)| (*uid, output.clone()))),
        }
    }

    /// Writes the outputs, once every graph's were stored, to a safetensors file.
    ///
    /// # Errors
    /// As [`write_values`].
    pub fn write_values(&self, path: &Path, values: &Values) -> Result<()> {
        match self {
            Problem::Graph(graph) => write_values(path, graph.outputs(), values),
            Problem::Rnn(network) => {
                let named = network.named_outputs();
                write_values(path, named.iter(), &network.named_values(values))
            }
            Problem::Mha(call) => {
                let named = call.named_outputs();
                write_values(path, named.iter(), &call.named_values(values))
            }
        }
    }
}
