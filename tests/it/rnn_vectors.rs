//! Recurrent networks against `tests/data/rnn`: what an oracle that knows nothing of Kiln says.

use std::collections::{BTreeMap, HashMap};

use kiln::plan::Problem;
use kiln::reference;
use serde::Deserialize;

/// How far two computations in f64 may be apart: networks of 3 units, up to 8 products deep, of
/// values below 4. Both round some hundred times, each by 1.1e-16 relative, and no cell magnifies
/// errors more than tenfold over 8 steps and layers.
const TOLERANCE: f64 = 1e-12;

#[derive(Deserialize)]
pub struct Case {
    pub name: String,
    problem: serde_json::Value,
    inputs: BTreeMap<String, Recipe>,
    lengths: Vec<f64>,
    outputs: BTreeMap<String, Vec<f64>>,
}

/// How `vectors.py` made an input.
#[derive(Deserialize)]
struct Recipe {
    dims: Vec<i64>,
    seed: i64,
    low: f64,
    high: f64,
}

impl Recipe {
    fn values(&self, name: &str) -> Vec<f64> {
        let value = |index: i64| {
            let fraction = ((index + self.seed) * 7919 % 251) as f64 / 250.0;
            self.low + (self.high - self.low) * fraction
        };
        let values = (0..self.dims.iter().product()).map(value);
        match name {
            "reset" => values.map(|value| f64::from(u8::from(value > 0.6))).collect(),
            _ => values.collect(),
        }
    }
}

pub fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("../data/rnn/cases.json")).expect("the file is well-formed")
}

#[test]
fn the_reference_agrees_with_the_oracle() {
    let mut failures = Vec::new();
    for case in cases() {
        let problem = Problem::from_json(&case.problem.to_string())
            .unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
        let Problem::Rnn(network) = &problem else { panic!("{}: no network", case.name) };
        let mut named = HashMap::new();
        for tensor in network.named_inputs() {
            let values = match case.inputs.get(&tensor.name) {
                Some(recipe) => recipe.values(&tensor.name),
                None => case.lengths.clone(),
            };
            named.insert(tensor.uid, values);
        }
        let values = network.graph_values(&named).expect("inputs fit the network");
        let results = reference::evaluate(&network.graph, &values).expect("values fit the graph");
        let results = results.into_iter().map(|(uid, expected)| (uid, expected.values)).collect();
        let results = network.named_values(&results);
        let outputs = network.named_outputs();
        assert_eq!(outputs.len(), case.outputs.len(), "{}", case.name);
        for tensor in outputs {
            let (actual, wanted) = (&results[&tensor.uid], &case.outputs[&tensor.name]);
            assert_eq!(actual.len(), wanted.len(), "{}: {tensor}", case.name);
            let off = |(actual, wanted): (&f64, &f64)| (actual - wanted).abs();
            let worst = actual.iter().zip(wanted).map(off).fold(0.0, f64::max);
            if worst.is_nan() || worst > TOLERANCE {
                failures.push(format!("{}: {} is off by {worst:e}", case.name, tensor.name));
            }
        }
    }
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}
