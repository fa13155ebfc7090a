//! Scaled dot-product attention by its extents: problem documents whose only key is `sdpa`.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::graph::OperationGraph;

#[derive(Deserialize)]
struct ProblemJson {
    sdpa: SdpaJson,
}

/// The extents; all other keys are attributes of the operation.
#[derive(Deserialize)]
struct SdpaJson {
    dtype: String,
    kv_dtype: Option<String>,
    #[serde(default = "f32")]
    math: String,
    #[serde(default = "one")]
    batch: i64,
    heads: i64,
    kv_heads: Option<i64>,
    queries: i64,
    keys: i64,
    depth: i64,
    width: Option<i64>,
    #[serde(default)]
    layout: Layout,
    page_size: Option<i64>,
    pages: Option<i64>,
    query_rows: Option<i64>,
    key_rows: Option<i64>,
    #[serde(default)]
    tensors: Vec<Value>,
    #[serde(flatten)]
    attributes: Map<String, Value>,
}

/// Memory order of queries, keys, values and results, outermost first.
#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "lowercase")]
enum Layout {
    /// Batch, head, sequence, element.
    #[default]
    Bhsd,
    /// Batch, sequence, head, element.
    Bshd,
}

fn f32() -> String {
    "f32".to_owned()
}

fn one() -> i64 {
    1
}

fn fail<T>(rule: String) -> Result<T> {
    Err(Error::bad_param(format!("sdpa: {rule}")))
}

/// Reads a problem document whose only key is `sdpa`: the graph of one attention operation.
///
/// # Errors
/// `BadParam` with line and column for malformed JSON, for pages that do not divide the keys, for
/// unknown tensors, and as [`OperationGraph::from_json`].
pub fn sdpa_from_json(text: &str) -> Result<OperationGraph> {
    let document: Map<String, Value> = serde_json::from_str(text).map_err(malformed)?;
    if let Some(key) = document.keys().find(|key| *key != "sdpa") {
        return fail(format!("a document has the one key `sdpa`, there is `{key}`"));
    }
    let ProblemJson { sdpa } = serde_json::from_str(text).map_err(malformed)?;
    let graph = sdpa.graph()?;
    OperationGraph::from_json(&graph.to_string()).map_err(|error| error.context("sdpa"))
}

fn malformed(error: serde_json::Error) -> Error {
    Error::bad_param(format!("malformed problem: {error}"))
}

impl SdpaJson {
    /// Converts to a document whose only key is `graph`.
    fn graph(&self) -> Result<Value> {
        let SdpaJson { batch, heads, queries, keys, .. } = *self;
        let kv_heads = self.kv_heads.unwrap_or(heads);
        let width = self.width.unwrap_or(self.depth);
        let [q_outer, q_rows] = match self.query_rows {
            None => [batch, queries],
            Some(rows) => [1, rows],
        };
        let [k_outer, k_rows] = self.key_extents()?;
        let mut tensors = vec![
            self.tensor("q", [q_outer, heads, q_rows, self.depth]),
            self.tensor("k", [k_outer, kv_heads, k_rows, self.depth]),
            self.tensor("v", [k_outer, kv_heads, k_rows, width]),
            self.tensor("o", [q_outer, heads, q_rows, width]),
        ];
        let mut operation = self.attributes.clone();
        operation.insert("attention".to_owned(), json!(self.math));
        for name in ["q", "k", "v", "o"] {
            operation.insert(name.to_owned(), json!(name));
        }
        if self.query_rows.is_some() {
            operation.insert("queries_max".to_owned(), json!(queries));
        }
        if self.key_rows.is_some() {
            operation.insert("keys_max".to_owned(), json!(keys));
        }
        for tensor in self.implied().map(|name| json!(name)).chain(self.tensors.iter().cloned()) {
            let tensor = match tensor.as_str() {
                Some(name) => self.operand(name, [q_outer, q_rows])?,
                None => tensor,
            };
            let name = tensor["name"].as_str().unwrap_or_default().to_owned();
            if OPERANDS.contains(&name.as_str()) {
                operation.insert(name.clone(), json!(name));
            }
            tensors.push(tensor);
        }
        Ok(json!({"graph": {"tensors": tensors, "operations": [operation]}}))
    }

    /// Outermost extent and number of rows of keys and values.
    fn key_extents(&self) -> Result<[i64; 2]> {
        let SdpaJson { batch, keys, .. } = *self;
        match (self.page_size, self.pages, self.key_rows) {
            (None, None, None) => Ok([batch, keys]),
            (None, None, Some(rows)) => Ok([1, rows]),
            (Some(size), Some(pages), None) if size > 0 && keys % size == 0 => Ok([pages, size]),
            (Some(size), Some(_), None) => {
                fail(format!("{keys} keys are no whole pages of {size} keys"))
            }
            (Some(_), Some(_), Some(_)) => {
                fail("keys are in pages or one sequence behind the other, not both".to_owned())
            }
            _ => fail("`page_size` and `pages` go together".to_owned()),
        }
    }

    /// Optional operands that other keys imply.
    fn implied(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            (self.pages.is_some(), "page_table"),
            (self.query_rows.is_some(), "query_offsets"),
            (self.key_rows.is_some(), "key_offsets"),
            (self.attributes.contains_key("dropout"), "seed"),
            (self.attributes.contains_key("dropout"), "offset"),
        ];
        given.into_iter().filter_map(|(given, name)| given.then_some(name))
    }

    /// JSON of queries, keys, values or results.
    fn tensor(&self, name: &str, dims: [i64; 4]) -> Value {
        let dtype = match name {
            "k" | "v" => self.kv_dtype.as_ref().unwrap_or(&self.dtype),
            _ => &self.dtype,
        };
        let [_, heads, rows, elements] = dims;
        let line = heads.saturating_mul(elements);
        let strides = match self.layout {
            Layout::Bhsd => [rows.saturating_mul(line), rows.saturating_mul(elements), elements, 1],
            Layout::Bshd => [rows.saturating_mul(line), elements, line, 1],
        };
        let strides = strides.map(|stride| stride.max(1));
        json!({"name": name, "dtype": dtype, "dims": dims, "strides": strides})
    }

    /// JSON of an optional operand or result, with its default extents.
    fn operand(&self, name: &str, [q_outer, q_rows]: [i64; 2]) -> Result<Value> {
        let SdpaJson { batch, heads, queries, keys, .. } = *self;
        let sums = if self.math == "f64" { "f64" } else { "f32" };
        let (dtype, dims) = match name {
            "bias" => (self.dtype.as_str(), [1, heads, queries, keys]),
            "mask" => ("bool", [batch, 1, queries, keys]),
            "slopes" | "sinks" => (sums, [1, heads, 1, 1]),
            "descale_q" | "descale_k" | "descale_v" => (sums, [1; 4]),
            "lse" => (sums, [q_outer, heads, q_rows, 1]),
            "key_begin" | "key_end" => ("i32", [batch, 1, queries, 1]),
            "query_lengths" | "key_lengths" => ("i32", [batch, 1, 1, 1]),
            "query_offsets" | "key_offsets" => ("i32", [batch.saturating_add(1), 1, 1, 1]),
            "page_table" => ("i32", [batch, 1, 1, keys / self.page_size.unwrap_or(1).max(1)]),
            "seed" | "offset" => ("i32", [1; 4]),
            _ => {
                let known = OPERANDS.join(", ");
                return fail(format!("tensor `{name}`, expected one of {known}"));
            }
        };
        Ok(json!({"name": name, "dtype": dtype, "dims": dims}))
    }
}

/// Operands and results besides queries, keys, values and attention results.
const OPERANDS: [&str; 17] = [
    "bias",
    "mask",
    "slopes",
    "sinks",
    "lse",
    "descale_q",
    "descale_k",
    "descale_v",
    "key_begin",
    "key_end",
    "query_lengths",
    "key_lengths",
    "query_offsets",
    "key_offsets",
    "page_table",
    "seed",
    "offset",
];
