//! Problem documents: the key of each front-end's document, and its reader.
//!
//! The only list of front-ends. [`Problem::from_json`](crate::plan::Problem::from_json) reads all
//! of them; `docs/problem-format.md` describes them.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::attention::{AttentionCall, sdpa_from_json};
use crate::error::{Error, Result};
use crate::frontend::FrontEnd;
use crate::graph::OperationGraph;
use crate::rnn;

type Reader = fn(&str) -> Result<Arc<dyn FrontEnd>>;

/// Readers of whole documents by the documents' only key.
const READERS: [(&str, Reader); 4] = [
    ("graph", |text| Ok(Arc::new(OperationGraph::from_json(text)?))),
    ("rnn", rnn::problem_from_json),
    ("sdpa", |text| Ok(Arc::new(sdpa_from_json(text)?))),
    ("mha", |text| Ok(Arc::new(AttentionCall::from_json(text)?))),
];

/// Reads a problem document.
///
/// # Errors
/// `BadParam` with line and column for malformed JSON, for a document without a known key or
/// with several, and as the reader of the key.
pub(crate) fn read(text: &str) -> Result<Arc<dyn FrontEnd>> {
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
    if document.contains_key("loop") {
        return Err(Error::not_supported(
            "a network with loops is no sequence of graphs: `kiln run` and `kiln engines` take it, \
             `Kiln::build_loops` plans it",
        ));
    }
    let known = READERS.map(|(key, _)| format!("`{key}`")).join(", ");
    let found = document.keys().next().map(|key| format!("unknown key `{key}`"));
    let found = found.unwrap_or_else(|| "no key".to_owned());
    Err(malformed(format!("{found}, expected one of {known}")))
}
