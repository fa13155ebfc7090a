//! Recurrent networks against `tests/data/rnn`: what an oracle that knows nothing of Kiln says.

use std::collections::BTreeMap;

use kiln::engine::{self, Selection};
use kiln::frontend::FrontEnd;
use kiln::graph::{Op, Operation};
use kiln::reference::{self, Expected};
use kiln::rnn::Network;
use kiln::{Kiln, Result, TensorDesc};
use serde::Deserialize;

use crate::harness::{self, Values};

/// How far two computations in f64 may be apart: networks of 17 units at most, up to 8 products
/// deep, of values below 16. Both round some hundred times, each by 1.1e-16 relative, and no cell
/// magnifies errors more than tenfold over 8 steps and layers.
const TOLERANCE: f64 = 1e-12;

#[derive(Deserialize)]
struct Case {
    name: String,
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

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("../data/rnn/cases.json")).expect("the file is well-formed")
}

impl Case {
    fn network(&self) -> Network {
        let network = Network::from_json(&self.problem.to_string());
        network.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// The values of the graph's inputs.
    fn values(&self, network: &Network) -> Values {
        let values = |tensor: TensorDesc| match self.inputs.get(&tensor.name) {
            Some(recipe) => (tensor.uid, recipe.values(&tensor.name)),
            None => (tensor.uid, self.lengths.clone()),
        };
        let named = network.named_inputs().into_iter().map(values).collect();
        network.initial_values(named).expect("inputs fit the network")
    }

    /// What is further from the oracle's results than the tolerance and these bounds.
    fn off(&self, network: &Network, actual: &Values, bounds: &Values) -> Vec<String> {
        let (actual, bounds) = (network.named_values(actual), network.named_values(bounds));
        let outputs = network.named_outputs();
        assert_eq!(outputs.len(), self.outputs.len(), "{}", self.name);
        let check = |tensor: &TensorDesc| {
            let bounds = bounds[&tensor.uid].iter().map(|bound| bound + TOLERANCE).collect();
            let expected = Expected { values: self.outputs[&tensor.name].clone(), bounds };
            let worst = expected.worst(&actual[&tensor.uid]).filter(|worst| worst.ratio > 1.0)?;
            Some(format!("{}: {}: {worst:?}", self.name, tensor.name))
        };
        outputs.iter().filter_map(check).collect()
    }
}

#[test]
fn the_reference_agrees_with_the_oracle() {
    let mut failures = Vec::new();
    for case in cases() {
        let network = case.network();
        let results = reference::evaluate(&network.graph, &case.values(&network));
        let results = results.expect("values fit the graph").into_iter();
        let zero = |values: &Vec<f64>| vec![0.0; values.len()];
        let values: Values = results.map(|(uid, expected)| (uid, expected.values)).collect();
        let bounds = values.iter().map(|(uid, values)| (*uid, zero(values))).collect();
        failures.extend(case.off(&network, &values, &bounds));
    }
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}

/// Engines that run recurrent layers.
const ENGINES: [&str; 5] = ["rnn_cta", "rnn_cluster", "rnn_grid", "rnn_stream", "rnn_step"];

/// The graph's results where this engine runs its recurrent layers; `None` where it refuses one.
fn run_on(kiln: &Kiln, network: &Network, engine: &str, inputs: &Values) -> Result<Option<Values>> {
    let target = kiln.device().target();
    let parts = engine::partition(&network.graph, target, &Selection::default())?;
    let mut values = inputs.clone();
    for part in parts {
        let recurrent = |operation: &Operation| matches!(operation.op, Op::Recurrence(_));
        let config = match part.graph.operations().iter().any(recurrent) {
            false => part.config,
            true => match engine::supported(engine, part.graph.canonical(), target) {
                Ok(supported) => supported.heuristic(),
                Err(_) => return Ok(None),
            },
        };
        values.extend(harness::run(kiln, &part.graph, Some(&config), &values)?);
    }
    Ok(Some(values))
}

/// Whether an engine runs a case on a device. Those of many units run on two engines each, by
/// turns, the small ones every sixth on `rnn_cta`, which takes them all, and every 48th on others,
/// each its own; devices take turns. The small ones come in fives, of which three cells have one of
/// each. `KILN_TEST_ALL=1` (`make test-vectors`) runs all: ordinary runs hold the reference to all
/// vectors, and engines to the reference (`tests/cases/rnn.toml`).
fn sampled(case: &Case, at: usize, of: usize, device: usize) -> bool {
    let wide = case.name.ends_with("_wide");
    let turn = (at / ENGINES.len() + of) % harness::dialects().len() == device;
    let chosen = match ENGINES[of] {
        _ if wide => (at + of) % ENGINES.len() < 2,
        "rnn_cta" => at.is_multiple_of(6),
        _ => (at + 5 * of).is_multiple_of(48),
    };
    harness::all_are_wanted() || (turn && chosen)
}

#[test]
fn every_engine_agrees_with_the_oracle() {
    let mut failures = Vec::new();
    let mut ran = BTreeMap::from(ENGINES.map(|engine| (engine, 0)));
    for (at, case) in cases().iter().enumerate() {
        let network = case.network();
        let inputs = case.values(&network);
        let expected = reference::evaluate(&network.graph, &inputs).expect("values fit the graph");
        let bounds = expected.into_iter().map(|(uid, expected)| (uid, expected.bounds)).collect();
        for (device, kiln) in harness::dialects().into_iter().enumerate() {
            let engines = (0..ENGINES.len()).filter(|of| sampled(case, at, *of, device));
            for engine in engines.map(|of| ENGINES[of]) {
                match run_on(kiln, &network, engine, &inputs) {
                    Ok(Some(actual)) => {
                        let off = case.off(&network, &actual, &bounds).into_iter();
                        failures.extend(off.map(|off| format!("{engine}: {off}")));
                        *ran.get_mut(engine).expect("it is one of them") += 1;
                    }
                    Ok(None) => {}
                    Err(error) => failures.push(format!("{engine}: {}: {error:?}", case.name)),
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
    let idle: Vec<_> = ran.iter().filter(|(_, count)| **count < 3).collect();
    assert!(idle.is_empty(), "hardly ever ran: {idle:?}");
}
