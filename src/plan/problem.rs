//! Problem documents of every kind: what the command line and manifests read.

use std::path::Path;

use serde_json::{Map, Value};

use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{OperationGraph, RowLayout};
use crate::plan::tensors::{read_values, write_values};
use crate::plan::trial::{Values, random_tensors, random_values};
use crate::rnn::{Extent, Network, Role};
use crate::tensor::TensorDesc;

/// A problem: an operation graph, or a network that lowers to one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Problem {
    /// A graph as it stands.
    Graph(OperationGraph),
    /// A recurrent network; its tensors have names of their own.
    Rnn(Box<Network>),
}

impl Problem {
    /// Reads a document whose one key is `graph` or `rnn`.
    ///
    /// # Errors
    /// As [`OperationGraph::from_json`] and [`Network::from_json`].
    pub fn from_json(text: &str) -> Result<Problem> {
        let document = serde_json::from_str::<Map<String, Value>>(text);
        if document.is_ok_and(|document| document.contains_key("rnn")) {
            return Ok(Problem::Rnn(Box::new(Network::from_json(text)?)));
        }
        Ok(Problem::Graph(OperationGraph::from_json(text)?))
    }

    /// What is computed.
    pub fn graph(&self) -> &OperationGraph {
        match self {
            Problem::Graph(graph) => graph,
            Problem::Rnn(network) => &network.graph,
        }
    }

    /// The values of the graph's inputs, from a safetensors file.
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
        }
    }

    /// Reproducible values for the graph's inputs: of a network, such that states neither vanish
    /// nor saturate, lengths that are in range, and a reset now and then.
    ///
    /// # Errors
    /// As [`random_values`].
    pub fn random_values(&self, seed: u64) -> Result<Values> {
        let Problem::Rnn(network) = self else { return random_values(self.graph(), seed) };
        let inputs = network.named_inputs();
        // Unrounded: what they become depends on the tensor.
        let raw = |tensor: &TensorDesc| TensorDesc { dtype: DType::F64, ..tensor.clone() };
        let raws: Vec<TensorDesc> = inputs.iter().map(raw).collect();
        let mut values = random_tensors(raws.iter(), seed)?;
        for tensor in &inputs {
            let own = values.get_mut(&tensor.uid).expect("every input has values");
            for (at, value) in own.iter_mut().enumerate() {
                *value = tensor.dtype.round(plausible(network, tensor, at, *value));
            }
        }
        network.graph_values(&values)
    }

    /// Writes outputs to a safetensors file.
    ///
    /// # Errors
    /// As [`write_values`].
    pub fn write_values(&self, path: &Path, outputs: &Values) -> Result<()> {
        match self {
            Problem::Graph(graph) => write_values(path, graph.outputs(), outputs),
            Problem::Rnn(network) => {
                let named = network.named_outputs();
                write_values(path, named.iter(), &network.named_values(outputs))
            }
        }
    }
}

/// What a random number in [-2, 2) stands for in a tensor of a network.
fn plausible(network: &Network, tensor: &TensorDesc, at: usize, value: f64) -> f64 {
    let Extent { batch, rows } = network.extent;
    match Role::ALL.into_iter().find(|role| role.name() == tensor.name) {
        Some(Role::Lengths) if network.rnn.layout == RowLayout::Packed => {
            (rows / batch + i64::from((at as i64) < rows % batch)) as f64
        }
        Some(Role::Lengths) => ((value + 2.0) / 4.0 * (rows / batch + 1) as f64).floor(),
        Some(Role::Reset) => f64::from(u8::from(value > 1.75)),
        Some(_) => value / 2.0,
        // What torch draws weights from.
        None => value / 2.0 / (network.rnn.hidden_size as f64).sqrt(),
    }
}
