//! Cases as data: reads `tests/cases/*.toml`, which the README beside them describes.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use kiln::engine::EngineConfig;
use kiln::{DType, OperationGraph, TensorDesc};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::attention::data::AttentionData;
use crate::convolution_data::{self, ConvolutionData};
use crate::harness::{self, Values};
use crate::norm_data::NormData;
use crate::resample_data::ResampleData;
use crate::rnn_data::{Layer, NetworkData};

/// Values of parameters.
pub type Parameters = BTreeMap<String, Value>;

/// One file: graphs with parameters, and cases that give them values.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Every case runs on all of them that take it.
    pub engines: Vec<String>,
    /// Values of parameters that several cases go through.
    #[serde(default)]
    lists: BTreeMap<String, Vec<Value>>,
    graph: BTreeMap<String, Graph>,
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Graph {
    /// What is computed, for readers.
    #[serde(rename = "computes")]
    _computes: String,
    #[serde(default)]
    default: Parameters,
    #[serde(default)]
    tensors: Vec<Value>,
    #[serde(default)]
    operations: Vec<Value>,
    /// What builds the graph of its parameters, in the place of tensors and operations.
    builder: Option<Builder>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Builder {
    Attention,
    Convolution,
    Norm,
    Resample,
    RnnLayer,
    RnnNetwork,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    /// What it is about, for readers.
    #[serde(default, rename = "about")]
    _about: String,
    graph: String,
    /// Fewer engines than the file has.
    pub engines: Option<Vec<String>>,
    /// Simulated devices; both dialects of PTX where nothing is said.
    #[serde(default = "both_dialects")]
    devices: Vec<String>,
    /// Ordinary runs take one of the devices for each instance, and every second engine, by turns.
    #[serde(default = "yes")]
    pub turns: bool,
    #[serde(default)]
    with: Parameters,
    /// Lists of values by parameter, or of tuples by several, separated by blanks; a value that is
    /// a table gives the parameters that it names. A text is the name of a list of the file. Every
    /// combination is an instance.
    #[serde(default)]
    every: BTreeMap<String, Every>,
    /// Ordinary runs take every so many of them.
    #[serde(default = "one")]
    sample: usize,
    /// What is asked of an engine beyond its own setting.
    #[serde(default)]
    knobs: BTreeMap<String, Value>,
    /// So many of an engine's legal settings run in place of its own.
    #[serde(default)]
    pub settings: BTreeMap<String, usize>,
    /// `KILN_SETTINGS=all` (`make settings`) runs all of them.
    #[serde(default)]
    pub every_setting: bool,
    /// Which settings give the same bits: `order`, those of one order of sums, or `setting`, none
    /// but two runs of one.
    #[serde(default)]
    pub agreement: Agreement,
    /// Whether the reference must give finite numbers alone: what it leaves out is none.
    #[serde(default)]
    pub finite: bool,
    /// Whether all engines of a device give the same bits.
    #[serde(default)]
    pub same_bits: bool,
    /// The values of a tensor, again and again.
    #[serde(default)]
    values: BTreeMap<String, Vec<f64>>,
    /// Single values of a tensor, by their index; negative ones count from the end.
    #[serde(default)]
    elements: BTreeMap<String, Vec<(Vec<i64>, f64)>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Every {
    List(String),
    Values(Vec<Value>),
}

/// The least and the greatest value of tensors by name.
type Ranges = Vec<(String, [f64; 2])>;

/// What an instance is of, beside its graph: who knows the values of the inputs.
enum Subject {
    /// That the file spells out, with the ranges of inputs by name.
    Graph(Ranges),
    Attention(Box<AttentionData>),
    Convolution,
    Resample(Box<ResampleData>),
    Norm(Box<NormData>),
    Layer(Box<Layer>),
    Network(Box<NetworkData>),
}

/// A case with a value for every parameter.
pub struct Instance {
    pub what: String,
    pub graph: OperationGraph,
    subject: Subject,
    knobs: BTreeMap<String, Value>,
    /// Its number among those of the case.
    at: usize,
}

impl Instance {
    /// Values of the inputs; of a graph that the file spells out, those of `others`.
    pub fn inputs(&self, case: &Case, others: fn(&OperationGraph) -> Values) -> Values {
        let mut inputs = match &self.subject {
            Subject::Graph(ranges) => {
                let mut inputs = others(&self.graph);
                for (name, range) in ranges {
                    let tensor = self.graph.tensor_named(name).expect("the graph has the tensor");
                    inputs.insert(tensor.uid, within(tensor, *range));
                }
                inputs
            }
            Subject::Attention(data) => data.inputs(),
            Subject::Convolution => convolution_data::values(&self.graph),
            Subject::Resample(data) => data.inputs(&self.graph),
            Subject::Norm(data) => data.inputs(),
            Subject::Layer(layer) => layer.inputs(&self.graph),
            Subject::Network(data) => data.inputs(),
        };
        case.give(&self.graph, &mut inputs);
        inputs
    }

    /// Whether it is a network, of which an engine runs the recurrent layers.
    pub fn is_network(&self) -> bool {
        matches!(self.subject, Subject::Network(_))
    }

    /// The devices that it runs on: on a GPU, just the GPU, whoever's turn it is.
    pub fn devices<'a>(&self, case: &'a Case) -> &'a [String] {
        static GPU: LazyLock<[String; 1]> = LazyLock::new(|| ["sim".to_owned()]);
        static ASKED: LazyLock<Option<[String; 1]>> =
            LazyLock::new(|| std::env::var("KILN_CASE_DEVICE").ok().map(|device| [device]));
        if harness::kiln().device().kind() != "sim" {
            return &*GPU;
        }
        if let Some(asked) = &*ASKED {
            return asked;
        }
        if !case.turns || harness::all_are_wanted() {
            return &case.devices;
        }
        // Multiples of the golden ratio, the fraction of them in 2^-32: whatever the period of a
        // parameter is, its values meet every device.
        let fraction = (self.at as u32).wrapping_mul(0x9e37_79b9);
        let turn = (u64::from(fraction) * case.devices.len() as u64) >> 32;
        std::slice::from_ref(&case.devices[turn as usize])
    }

    /// An engine's setting with the knobs that the case asks for.
    pub fn ask(&self, mut config: EngineConfig) -> EngineConfig {
        let asked = self.knobs.get(&*config.engine).and_then(Value::as_object);
        for (knob, value) in asked.into_iter().flatten() {
            config = config.with(knob, value.as_i64().expect("a knob is a number"));
        }
        config
    }
}

/// What settings have in common that give the same bits.
#[derive(Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// The order of sums.
    #[default]
    Order,
    /// Nothing: sums follow tiles. Two runs of one give the same.
    Setting,
}

fn both_dialects() -> Vec<String> {
    ["sim", "sim120"].map(str::to_owned).to_vec()
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}

impl File {
    /// `tests/cases/NAME.toml`.
    pub fn read(name: &str) -> File {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
        let path = folder.join(name).with_extension("toml");
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("failed to read `{}`: {error}", path.display()));
        toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// A graph of this file with its parameters filled in.
    pub fn graph(&self, name: &str, with: &Parameters) -> OperationGraph {
        self.subject(name, with).0
    }

    fn subject(&self, name: &str, with: &Parameters) -> (OperationGraph, Subject) {
        let graph = self.graph.get(name).unwrap_or_else(|| panic!("no graph `{name}`"));
        let mut all = graph.default.clone();
        all.extend(with.clone());
        match graph.builder {
            None => {
                let (graph, ranges) = graph.spelled_out(name, &all);
                (graph, Subject::Graph(ranges))
            }
            Some(Builder::Attention) => {
                let data: AttentionData = fields(&all);
                (data.graph(), Subject::Attention(Box::new(data)))
            }
            Some(Builder::Convolution) => {
                let data: ConvolutionData = fields(&all);
                (data.graph(), Subject::Convolution)
            }
            Some(Builder::Norm) => {
                let data: NormData = fields(&all);
                (data.graph(), Subject::Norm(Box::new(data)))
            }
            Some(Builder::Resample) => {
                let data: ResampleData = fields(&all);
                (data.graph(), Subject::Resample(Box::new(data)))
            }
            Some(Builder::RnnLayer) => {
                let layer: Layer = fields(&all);
                (layer.graph(), Subject::Layer(Box::new(layer)))
            }
            Some(Builder::RnnNetwork) => {
                let data = NetworkData::new(all);
                (data.graph(), Subject::Network(Box::new(data)))
            }
        }
    }

    /// The instances of a case that an ordinary run takes, or all.
    pub fn instances(&self, case: &Case) -> Vec<Instance> {
        let all = self.every(case);
        self.built(case, harness::sampled(all, case.sample))
    }

    /// Every so many instances of a case, whatever runs take.
    pub fn instances_of(&self, case: &Case, step: usize) -> Vec<Instance> {
        self.built(case, self.every(case).into_iter().step_by(step).collect())
    }

    fn built(&self, case: &Case, all: Vec<Parameters>) -> Vec<Instance> {
        all.iter().enumerate().map(|(at, with)| self.instance(case, with, at)).collect()
    }

    /// Every combination of a case's parameters.
    fn every(&self, case: &Case) -> Vec<Parameters> {
        let mut all = vec![case.with.clone()];
        for (names, values) in &case.every {
            let names: Vec<&str> = names.split_whitespace().collect();
            let values = match values {
                Every::Values(values) => values,
                Every::List(name) => {
                    self.lists.get(name).unwrap_or_else(|| panic!("no list `{name}`"))
                }
            };
            let given = |before: &Parameters, value: &Value| {
                let mut after = before.clone();
                match (names.len(), value) {
                    (1, Value::Object(table)) => after.extend(table.clone()),
                    (1, value) => _ = after.insert(names[0].to_owned(), value.clone()),
                    (count, Value::Array(tuple)) if tuple.len() == count => {
                        let own = std::iter::zip(&names, tuple);
                        after.extend(own.map(|(name, value)| ((*name).to_owned(), value.clone())));
                    }
                    _ => panic!("{}: {names:?} is {value}", case.name),
                }
                after
            };
            let with = |before: &Parameters| -> Vec<Parameters> {
                values.iter().map(|value| given(before, value)).collect()
            };
            all = all.iter().flat_map(with).collect();
        }
        all
    }

    fn instance(&self, case: &Case, with: &Parameters, at: usize) -> Instance {
        let name = fill(&Value::String(case.graph.clone()), with);
        let name = name.as_str().expect("graphs have names");
        let shown: Vec<String> =
            with.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let what = format!("{}: {name} {}", case.name, shown.join(" "));
        let knob = |(engine, knobs): (&String, &Value)| (engine.clone(), fill(knobs, with));
        let knobs = case.knobs.iter().map(knob).collect();
        let mut own = with.clone();
        own.retain(|name, _| !case.is_of_knobs(name));
        let (graph, subject) = self.subject(name, &own);
        Instance { what, graph, subject, knobs, at }
    }
}

/// Parameters as the fields of a type.
fn fields<T: DeserializeOwned>(all: &Parameters) -> T {
    serde_json::from_value(json!(all)).unwrap_or_else(|error| panic!("{all:?}: {error}"))
}

impl Graph {
    fn spelled_out(&self, name: &str, all: &Parameters) -> (OperationGraph, Ranges) {
        let fill_all = |of: &[Value]| -> Vec<Value> {
            of.iter().flat_map(|item| repeated(item, all)).filter(is_there).collect()
        };
        let [mut tensors, mut operations] =
            [&self.tensors, &self.operations].map(|of| fill_all(of));
        tensors.iter_mut().for_each(place);
        let range = |tensor: &mut Value| {
            let range = tensor.as_object_mut()?.remove("range")?;
            let name = tensor["name"].as_str().expect("a tensor has a name").to_owned();
            Some((name, serde_json::from_value(range).expect("a range is two numbers")))
        };
        let ranges = tensors.iter_mut().filter_map(range).collect();
        for entry in tensors.iter_mut().chain(&mut operations) {
            entry.as_object_mut().expect("an entry is a table").remove("if");
        }
        let document = json!({"graph": {"tensors": tensors, "operations": operations}});
        let graph = OperationGraph::from_json(&document.to_string())
            .unwrap_or_else(|error| panic!("{name} {all:?}: {error:?}"));
        (graph, ranges)
    }
}

impl Case {
    /// Whether a knob is given the value of this parameter, which a builder does not know.
    fn is_of_knobs(&self, parameter: &str) -> bool {
        let values = self.knobs.values().filter_map(Value::as_object).flat_map(Map::values);
        let mut texts = values.filter_map(Value::as_str);
        texts.any(|text| text == format!("{{{parameter}}}"))
    }

    /// Puts the values that the case gives in the place of others.
    fn give(&self, graph: &OperationGraph, inputs: &mut Values) {
        let named = |name: &str| graph.tensor_named(name).expect("the graph has the tensor");
        for (name, values) in &self.values {
            if let Ok(tensor) = graph.tensor_named(name) {
                let count = tensor.elements().expect("tensors under test are small") as usize;
                let values = values.iter().map(|value| tensor.dtype.round(*value));
                inputs.insert(tensor.uid, values.cycle().take(count).collect());
            }
        }
        for (name, elements) in &self.elements {
            let tensor = named(name);
            for (index, value) in elements {
                let at = std::iter::zip(index, &tensor.dims).fold(0, |at, (index, extent)| {
                    at * extent + if *index < 0 { extent + index } else { *index }
                });
                inputs.get_mut(&tensor.uid).expect("it is an input")[at as usize] = *value;
            }
        }
    }
}

/// Whether an entry is part of the graph: it says no `if`, or one that is not `"none"`.
fn is_there(entry: &Value) -> bool {
    entry.get("if").is_none_or(|condition| condition != "none")
}

/// An entry with its parameters filled in, once for each value of the list that is its `each`.
fn repeated(entry: &Value, with: &Parameters) -> Vec<Value> {
    let mut entry = entry.clone();
    let Some(each) = entry.as_object_mut().and_then(|fields| fields.remove("each")) else {
        return vec![fill(&entry, with)];
    };
    let each = fill(&each, with);
    let one = |value: &Value| {
        let mut with = with.clone();
        with.insert("each".to_owned(), value.clone());
        fill(&entry, &with)
    };
    each.as_array().expect("each is of a list").iter().map(one).collect()
}

/// A document with values in the place of `{parameters}`; a list in a list is spliced into it, and
/// a field that is `"none"` is left out, but for a condition.
fn fill(document: &Value, with: &Parameters) -> Value {
    match document {
        Value::String(text) => {
            let name = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
            let value = name.map(|name| with.get(name));
            match value {
                None => match with.get("each").and_then(Value::as_str) {
                    Some(each) => Value::String(text.replace("{each}", each)),
                    None => document.clone(),
                },
                Some(value) => value.unwrap_or_else(|| panic!("{text} has no value")).clone(),
            }
        }
        Value::Array(items) => {
            let filled = items.iter().map(|item| (fill(item, with), item.is_string()));
            let spliced = filled.flat_map(|item| match item {
                (Value::Array(inner), true) => inner,
                (item, _) => vec![item],
            });
            Value::Array(spliced.collect())
        }
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| (key.clone(), fill(value, with));
            Value::Object(
                fields
                    .iter()
                    .map(field)
                    .filter(|(key, value)| key == "if" || value != "none")
                    .collect(),
            )
        }
        other => other.clone(),
    }
}

/// Values of a tensor from the least to the greatest, with a prime period.
fn within(tensor: &TensorDesc, [least, greatest]: [f64; 2]) -> Vec<f64> {
    let around_0 = harness::fill(
        &TensorDesc { dtype: DType::F64, ..tensor.clone() },
        tensor.uid as u64,
        (greatest - least) / 2.0,
    );
    let middle = (least + greatest) / 2.0;
    around_0.into_iter().map(|value| tensor.dtype.round(value + middle)).collect()
}

/// Reduces a tensor's dimensions to those that are `kept`, of batches, rows and columns; turns the
/// `lay` of its last two into strides and an alignment.
fn place(tensor: &mut Value) {
    let fields = tensor.as_object_mut().expect("a tensor is a table");
    if let Some(kept) = fields.remove("kept") {
        let kept = match kept.as_str().expect("a name") {
            "rows" => [true, true, false],
            "columns" => [true, false, true],
            "columns_of_all" => [false, false, true],
            "rows_of_all" => [false, true, false],
            "matrices" => [true, false, false],
            "nothing" => [false; 3],
            other => panic!("no kept `{other}`"),
        };
        let dims = fields["dims"].as_array_mut().expect("a list").iter_mut();
        for (dim, kept) in std::iter::zip(dims, kept) {
            *dim = if kept { dim.take() } else { json!(1) };
        }
    }
    let Some(lay) = fields.remove("lay") else { return };
    let dims: Vec<i64> = fields["dims"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|dim| dim.as_i64().unwrap())
        .collect();
    let [.., rows, columns] = dims[..] else { panic!("{fields:?}: two dimensions lie") };
    let [rows, columns] = [rows.max(1), columns.max(1)];
    let [odd_row, odd_column] = [(columns + 2) | 1, (rows + 2) | 1];
    let (row, column, matrix) = match lay.as_str().expect("a name") {
        "rows" => return,
        "misaligned" => return align_least(fields),
        "columns" => (1, rows, rows * columns),
        "odd_rows" => (odd_row, 1, rows * odd_row),
        "odd_columns" => (1, odd_column, columns * odd_column),
        // Rows further apart than they are long.
        "padded" => (columns + 8, 1, rows * (columns + 8)),
        // Whole vectors between rows.
        "vector_rows" => ((columns + 31) / 16 * 16, 1, rows * ((columns + 31) / 16 * 16)),
        // Neither stride is a power of two or a multiple of a vector.
        "sparse" => (3 * columns + 7, 3, rows * (3 * columns + 7)),
        other => panic!("no lay `{other}`"),
    };
    if lay == "sparse" {
        align_least(fields);
    }
    let mut strides = vec![column, row];
    let mut outer = matrix;
    for extent in dims[..dims.len() - 2].iter().rev() {
        strides.push(outer);
        outer *= extent.max(&1);
    }
    strides.reverse();
    fields.insert("strides".to_owned(), json!(strides));
}

/// Aligns a tensor to one element.
fn align_least(fields: &mut Map<String, Value>) {
    let dtype: DType = serde_json::from_value(fields["dtype"].clone()).expect("a type");
    fields.insert("alignment".to_owned(), json!(dtype.bytes()));
}
