//! ONNX's node tests of RNN, LSTM and GRU: `tests/data/onnx/recurrent.py` says where they are from.

use std::fs;
use std::path::PathBuf;

use kiln::frontend::FrontEnd;
use kiln::reference::{self, Expected};
use kiln::rnn::{HostTensor, Network};
use kiln::{DType, TensorDesc};
use safetensors::SafeTensors;
use serde::Deserialize;

use crate::harness::{self, Values};

#[derive(Deserialize)]
struct Index {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    problem: serde_json::Value,
}

/// A case with the values of its graph and ONNX's results by name.
struct Loaded {
    name: String,
    network: Network,
    inputs: Values,
    expected: Vec<(TensorDesc, Vec<f64>)>,
}

fn file(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/onnx").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("failed to read `{}`: {error}", path.display()))
}

fn load() -> Vec<Loaded> {
    let bytes = file("recurrent.safetensors");
    let tensors = SafeTensors::deserialize(&bytes).expect("the container is well-formed");
    let index: Index =
        serde_json::from_slice(&file("recurrent.json")).expect("the index is well-formed");
    let load = |case: Case| {
        let network = Network::from_json(&case.problem.to_string())
            .unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
        let read = |slot: &str| {
            let view = tensors.tensor(&format!("{}/{slot}", case.name)).ok()?;
            let dtype = if slot == "lengths" { DType::I32 } else { DType::F32 };
            let dims: Vec<i64> = view.shape().iter().map(|dim| *dim as i64).collect();
            let elements = view.data().chunks_exact(dtype.bytes());
            Some(HostTensor::new(&dims, elements.map(|bytes| dtype.read(bytes)).collect()))
        };
        let (w, r) = (read("W").expect("it has weights"), read("R").expect("it has weights"));
        let (b, p) = (read("B"), read("P"));
        let weights = network.rnn.from_onnx(&w, &r, b.as_ref(), p.as_ref());
        let weights = weights.unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
        let inputs = network.values_with(&weights, |role| read(role.name()));
        let inputs = inputs.unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
        let outputs = network.named_outputs().into_iter();
        let expected = outputs.filter_map(|tensor| {
            let values = read(&tensor.name)?.values;
            Some((tensor, values))
        });
        let expected = expected.collect();
        Loaded { name: case.name, expected, network, inputs }
    };
    index.cases.into_iter().map(load).collect()
}

/// Panics where a result is further from ONNX's than both may be from what is meant: NumPy rounds
/// every step in f32 as an implementation may, which is what the reference bounds, and its
/// functions are off by less than 4 ulp.
fn compare(case: &Loaded, actual: &Values, what: &str) {
    let bounds = reference::evaluate(&case.network.graph, &case.inputs).expect("inputs fit");
    let bounds = bounds.into_iter().map(|(uid, expected)| (uid, expected.bounds)).collect();
    let (actual, bounds) = (case.network.named_values(actual), case.network.named_values(&bounds));
    for (tensor, values) in &case.expected {
        let own = values.iter().zip(&bounds[&tensor.uid]).map(|(value, bound)| {
            2.0 * bound + 4.0 * tensor.dtype.epsilon() * value.abs() + tensor.dtype.smallest()
        });
        let expected = Expected { values: values.clone(), bounds: own.collect() };
        if let Some(worst) = expected.worst(&actual[&tensor.uid]) {
            assert!(worst.ratio <= 1.0, "{what}: {}: {tensor}: {worst:?}", case.name);
        }
    }
}

#[test]
fn every_case_is_there() {
    let cases = load();
    let of = |part: &str| cases.iter().filter(|case| case.name.contains(part)).count();
    assert_eq!((cases.len(), of("lstm"), of("gru"), of("rnn")), (12, 4, 4, 4));
    assert!(cases.iter().all(|case| !case.expected.is_empty()));
}

#[test]
fn the_reference_agrees_with_onnx_on_networks() {
    for case in load() {
        let values = reference::evaluate(&case.network.graph, &case.inputs).expect("inputs fit");
        let values = values.into_iter().map(|(uid, expected)| (uid, expected.values)).collect();
        compare(&case, &values, "reference");
    }
}

#[test]
fn every_device_agrees_with_onnx_on_networks() {
    for (at, case) in load().into_iter().enumerate() {
        for kiln in harness::dialects_by_turns(at) {
            let arch = kiln.device().target().arch.to_string();
            let actual = harness::run(kiln, &case.network.graph, None, &case.inputs);
            let actual = actual.unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
            compare(&case, &actual, &arch);
        }
    }
}
