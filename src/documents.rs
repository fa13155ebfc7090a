//! Problem documents: the key of each front-end's document, and its reader.
//!
//! The only list of front-ends. Manifests take all of them,
//! [`Problem::from_json`](crate::plan::Problem::from_json) those that are sequences of graphs;
//! `docs/problem-format.md` describes them.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::attention::{AttentionCall, sdpa_from_json};
use crate::error::{Error, Result};
use crate::frontend::FrontEnd;
use crate::graph::OperationGraph;
use crate::loops::{Network, Refusals};
use crate::rnn;

/// What a document describes.
#[derive(Debug)]
pub(crate) enum Document {
    /// Graphs that run in sequence.
    Graphs(Arc<dyn FrontEnd>),
    /// A network with loops, whose graphs depend on what the engines of a target run.
    Loops(Network),
}

/// What is planned of a problem document.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Planned {
    /// A graph.
    Graph(OperationGraph),
    /// The graphs of a network with loops, which depend on what the engines of a target run.
    Loops(Network),
}

impl Planned {
    /// The graph, if it is one.
    pub fn graph(&self) -> Option<&OperationGraph> {
        match self {
            Planned::Graph(graph) => Some(graph),
            Planned::Loops(_) => None,
        }
    }

    /// What serves the graph, or each graph of the network's lowering that is served.
    ///
    /// # Errors
    /// As the lowering and `serve`.
    pub(crate) fn served<T>(&self, serve: impl Fn(&OperationGraph) -> Result<T>) -> Result<Vec<T>> {
        match self {
            Planned::Graph(graph) => Ok(vec![serve(graph)?]),
            Planned::Loops(network) => Ok(network.served(Refusals::new(), serve)?.1),
        }
    }
}

impl Document {
    /// Every graph, those that a layer plans besides, or the network.
    pub(crate) fn planned(self) -> Vec<Planned> {
        match self {
            Document::Graphs(of) => {
                let graphs = of.graphs().into_iter().cloned().chain(of.besides());
                graphs.map(Planned::Graph).collect()
            }
            Document::Loops(network) => vec![Planned::Loops(network)],
        }
    }
}

type Reader = fn(&str) -> Result<Document>;

/// Readers of whole documents by the documents' only key.
const READERS: [(&str, Reader); 5] = [
    ("graph", |text| Ok(Document::Graphs(Arc::new(OperationGraph::from_json(text)?)))),
    ("rnn", |text| rnn::problem_from_json(text).map(Document::Graphs)),
    ("sdpa", |text| Ok(Document::Graphs(Arc::new(sdpa_from_json(text)?)))),
    ("mha", |text| Ok(Document::Graphs(Arc::new(AttentionCall::from_json(text)?)))),
    ("loop", |text| Network::from_json(text).map(Document::Loops)),
];

/// Reads a problem document.
///
/// # Errors
/// `BadParam` with line and column for malformed JSON, for a document without a known key or
/// with several, and as the reader of the key.
pub(crate) fn read(text: &str) -> Result<Document> {
    let malformed = |what: String| Error::bad_param(format!("malformed problem: {what}"));
    let document: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
    let mut readers = READERS.iter().filter(|(key, _)| document.contains_key(*key));
    match (readers.next(), readers.next()) {
        (Some((_, read)), None) => return read(text),
        (Some((key, _)), Some((other, _))) => {
            return Err(malformed(format!("the keys `{key}` and `{other}`, expected one")));
        }
        _ => {}
    }
    let known = READERS.map(|(key, _)| format!("`{key}`")).join(", ");
    let found = document.keys().next().map(|key| format!("unknown key `{key}`"));
    let found = found.unwrap_or_else(|| "no key".to_owned());
    Err(malformed(format!("{found}, expected one of {known}")))
}
