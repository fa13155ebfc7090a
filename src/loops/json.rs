//! JSON form of a network, the value of the key `loop` of a problem file.
//!
//! Tensors and operations are written as those of a graph. A layer that is no operation has the key
//! `layer`, which says what it is.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::graph::{
    TensorJson, read_operation, read_tensors, referred, write_operation, write_tensor,
};
use crate::loops::layer::{BranchResult, Layer, Loop, LoopOutput, TripLimit};
use crate::loops::network::{LoopDescriptor, Network, TRIPS_MAX};
use crate::tensor::TensorDesc;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DocumentJson<L> {
    #[serde(rename = "loop")]
    network: NetworkJson<L>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkJson<L> {
    tensors: Vec<TensorJson>,
    loops: Vec<LoopJson>,
    layers: Vec<L>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    on_device: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoopJson {
    name: String,
    #[serde(default = "trips_max", skip_serializing_if = "is_usual")]
    trips_max: i64,
}

fn trips_max() -> i64 {
    TRIPS_MAX
}

fn is_usual(trips: &i64) -> bool {
    *trips == TRIPS_MAX
}

/// A layer that is no operation.
#[derive(Serialize, Deserialize)]
#[serde(tag = "layer", rename_all = "snake_case", deny_unknown_fields)]
enum LayerJson {
    TripLimit {
        r#loop: String,
        limit: LimitJson,
        x: String,
    },
    Iterator {
        r#loop: String,
        axis: usize,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        reverse: bool,
        x: String,
        y: String,
    },
    Recurrence {
        r#loop: String,
        initial: String,
        next: String,
        y: String,
    },
    LoopOutput {
        r#loop: String,
        output: OutputJson,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        axis: Option<usize>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        length: Option<i64>,
        x: String,
        y: String,
    },
    Conditional {
        condition: String,
        then: Vec<String>,
        r#else: Vec<String>,
        y: Vec<String>,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LimitJson {
    Count,
    While,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OutputJson {
    LastValue,
    Concatenate,
    Reverse,
}

fn malformed(what: impl std::fmt::Display) -> Error {
    Error::bad_param(format!("malformed problem: {what}"))
}

impl Network {
    /// Reads a problem document whose only key is `loop`.
    ///
    /// # Errors
    /// `BadParam` with line and column for malformed JSON, with the name for an unknown tensor,
    /// loop, type or mode, and as [`Network::new`].
    pub fn from_json(text: &str) -> Result<Network> {
        let document: DocumentJson<Map<String, Value>> =
            serde_json::from_str(text).map_err(malformed)?;
        let NetworkJson { tensors, loops, layers, on_device } = document.network;
        let mut tensors = read_tensors(tensors)?;
        tensors.sort_by_key(|tensor| tensor.uid);
        let reader = Reader { tensors: &tensors, loops: &loops };
        let layers = layers.into_iter().map(|layer| match layer.contains_key("layer") {
            true => reader.layer(serde_json::from_value(Value::Object(layer)).map_err(malformed)?),
            false => Ok(Layer::Operation(read_operation(layer, &tensors)?)),
        });
        let layers = layers.collect::<Result<_>>()?;
        let loop_of = |LoopJson { name, trips_max }: &LoopJson| LoopDescriptor {
            name: name.clone(),
            trips_max: *trips_max,
        };
        let loops = loops.iter().map(loop_of).collect();
        let network = Network::new(tensors, layers, loops)?;
        Ok(if on_device { network.on_device() } else { network })
    }

    /// Writes the document that [`Network::from_json`] reads.
    pub fn to_json(&self) -> String {
        let network = NetworkJson {
            tensors: self.tensors().iter().map(write_tensor).collect(),
            loops: self.loops().map(|of| self.loop_json(of)).collect(),
            layers: self.layers().iter().map(|layer| self.layer_json(layer)).collect(),
            on_device: self.is_on_device(),
        };
        serde_json::to_string_pretty(&DocumentJson { network }).expect("plain data is JSON")
    }

    fn loop_json(&self, of: Loop) -> LoopJson {
        let LoopDescriptor { name, trips_max } = self.descriptor(of).clone();
        LoopJson { name, trips_max }
    }

    fn layer_json(&self, layer: &Layer) -> Value {
        let tensor = |uid: &i64| self.reference(*uid);
        let name = |of: &Loop| self.descriptor(*of).name.clone();
        let written = match layer {
            Layer::Operation(operation) => {
                return json!(write_operation(operation, self.tensors()));
            }
            Layer::TripLimit { of, limit, x } => {
                let limit = match limit {
                    TripLimit::Count => LimitJson::Count,
                    TripLimit::While => LimitJson::While,
                };
                LayerJson::TripLimit { r#loop: name(of), limit, x: tensor(x) }
            }
            Layer::Iterator { of, x, axis, reverse, y } => LayerJson::Iterator {
                r#loop: name(of),
                axis: *axis,
                reverse: *reverse,
                x: tensor(x),
                y: tensor(y),
            },
            Layer::Recurrence { of, initial, next, y } => LayerJson::Recurrence {
                r#loop: name(of),
                initial: tensor(initial),
                next: tensor(next),
                y: tensor(y),
            },
            Layer::LoopOutput { of, output, x, y } => {
                let (axis, length) = output.concatenated().unzip();
                let output = match output {
                    LoopOutput::LastValue => OutputJson::LastValue,
                    LoopOutput::Concatenate { .. } => OutputJson::Concatenate,
                    LoopOutput::Reverse { .. } => OutputJson::Reverse,
                };
                let (of, x, y) = (name(of), tensor(x), tensor(y));
                LayerJson::LoopOutput { r#loop: of, output, axis, length, x, y }
            }
            Layer::Conditional { condition, results } => {
                let of = |uid: fn(&BranchResult) -> i64| {
                    results.iter().map(|result| tensor(&uid(result))).collect()
                };
                LayerJson::Conditional {
                    condition: tensor(condition),
                    then: of(|result| result.then),
                    r#else: of(|result| result.otherwise),
                    y: of(|result| result.y),
                }
            }
        };
        json!(written)
    }
}

struct Reader<'a> {
    tensors: &'a [TensorDesc],
    loops: &'a [LoopJson],
}

impl Reader<'_> {
    fn tensor(&self, name: &str) -> Result<i64> {
        let unknown = || Error::bad_param(format!("no tensor of the network is named `{name}`"));
        referred(self.tensors, name).ok_or_else(unknown)
    }

    fn of(&self, name: &str) -> Result<Loop> {
        let unknown = || Error::bad_param(format!("no loop of the network is named `{name}`"));
        self.loops.iter().position(|of| of.name == name).map(Loop).ok_or_else(unknown)
    }

    fn layer(&self, layer: LayerJson) -> Result<Layer> {
        Ok(match layer {
            LayerJson::TripLimit { r#loop, limit, x } => {
                let limit = match limit {
                    LimitJson::Count => TripLimit::Count,
                    LimitJson::While => TripLimit::While,
                };
                Layer::TripLimit { of: self.of(&r#loop)?, limit, x: self.tensor(&x)? }
            }
            LayerJson::Iterator { r#loop, axis, reverse, x, y } => {
                let (of, x, y) = (self.of(&r#loop)?, self.tensor(&x)?, self.tensor(&y)?);
                Layer::Iterator { of, x, axis, reverse, y }
            }
            LayerJson::Recurrence { r#loop, initial, next, y } => Layer::Recurrence {
                of: self.of(&r#loop)?,
                initial: self.tensor(&initial)?,
                next: self.tensor(&next)?,
                y: self.tensor(&y)?,
            },
            LayerJson::LoopOutput { r#loop, output, axis, length, x, y } => {
                let output = match (output, axis, length) {
                    (OutputJson::LastValue, None, None) => LoopOutput::LastValue,
                    (OutputJson::Concatenate, Some(axis), Some(length)) => {
                        LoopOutput::Concatenate { axis, length }
                    }
                    (OutputJson::Reverse, Some(axis), Some(length)) => {
                        LoopOutput::Reverse { axis, length }
                    }
                    (OutputJson::LastValue, ..) => {
                        return Err(malformed(format!(
                            "`{y}`: a last value has no axis or length"
                        )));
                    }
                    _ => return Err(malformed(format!("`{y}`: expected an axis and a length"))),
                };
                let (of, x, y) = (self.of(&r#loop)?, self.tensor(&x)?, self.tensor(&y)?);
                Layer::LoopOutput { of, output, x, y }
            }
            LayerJson::Conditional { condition, then, r#else, y } => {
                if then.len() != y.len() || r#else.len() != y.len() {
                    let counts = [&then, &r#else, &y].map(Vec::len);
                    return Err(malformed(format!(
                        "conditional on `{condition}`: {} values of `then`, {} of `else`, {} \
                         results",
                        counts[0], counts[1], counts[2]
                    )));
                }
                let mut results = Vec::new();
                for ((then, otherwise), y) in then.iter().zip(&r#else).zip(&y) {
                    let [then, otherwise, y] = [then, otherwise, y].map(|name| self.tensor(name));
                    results.push(BranchResult { then: then?, otherwise: otherwise?, y: y? });
                }
                Layer::Conditional { condition: self.tensor(&condition)?, results }
            }
        })
    }
}
