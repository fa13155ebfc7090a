//! torch's networks: `tests/data/rnn/torch_cases.py` ran them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use kiln::device::DeviceChoice;
use kiln::frontend::FrontEnd;
use kiln::plan::Problem;
use kiln::reference::{self, Expected};
use kiln::rnn::Network;
use kiln::{Config, Kiln, TensorDesc, plan};
use serde::Deserialize;

use crate::harness::{self, Values};

#[derive(Deserialize)]
struct Case {
    name: String,
    problem: serde_json::Value,
}

fn cases() -> Vec<(String, Network)> {
    let cases: Vec<Case> =
        serde_json::from_str(include_str!("../data/rnn/torch.json")).expect("well-formed");
    let load = |case: Case| match Network::from_json(&case.problem.to_string()) {
        Ok(network) => (case.name, network),
        Err(error) => panic!("{}: {error}", case.name),
    };
    cases.into_iter().map(load).collect()
}

/// Tensors of a case in the container, by uid.
fn values(name: &str, tensors: &[TensorDesc]) -> HashMap<i64, Vec<f64>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/rnn/torch.safetensors");
    let named = tensors
        .iter()
        .map(|tensor| TensorDesc { name: format!("{name}/{}", tensor.name), ..tensor.clone() });
    let named: Vec<TensorDesc> = named.collect();
    plan::read_values(&path, named.iter()).expect("the container has the case's tensors")
}

/// Panics where a result is further from torch's than both may be from what is meant: both compute
/// in f32, in an order of their own, which is what the reference bounds.
fn compare(name: &str, network: &Network, inputs: &Values, actual: &Values, what: &str) {
    let expected = reference::evaluate(&network.graph, inputs).expect("inputs fit");
    let bounds = expected.into_iter().map(|(uid, expected)| (uid, expected.bounds)).collect();
    let (actual, bounds) = (network.named_values(actual), network.named_values(&bounds));
    let outputs = network.named_outputs();
    let torch = values(name, &outputs);
    for tensor in &outputs {
        let bounds = bounds[&tensor.uid].iter().map(|bound| 2.0 * bound).collect();
        let expected = Expected { values: torch[&tensor.uid].clone(), bounds };
        if let Some(worst) = expected.worst(&actual[&tensor.uid]) {
            assert!(worst.ratio <= 1.0, "{what}: {name}: {tensor}: {worst:?}");
        }
    }
}

#[test]
fn reference_and_devices_agree_with_torch() {
    let cases = cases();
    assert_eq!(cases.len(), 17);
    for (at, (name, network)) in cases.iter().enumerate() {
        let inputs = network.initial_values(values(name, &network.named_inputs()));
        let inputs = inputs.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let expected = reference::evaluate(&network.graph, &inputs).expect("inputs fit");
        let reference = expected.into_iter().map(|(uid, expected)| (uid, expected.values));
        compare(name, network, &inputs, &reference.collect(), "reference");
        for kiln in harness::dialects_by_turns(at) {
            let actual = harness::run(kiln, &network.graph, None, &inputs);
            let actual = actual.unwrap_or_else(|error| panic!("{name}: {error:?}"));
            let arch = kiln.device().target().arch.to_string();
            compare(name, network, &inputs, &actual, &arch);
        }
    }
}

/// Fast activations are further from torch's, by no more than their bounds, at their worst.
#[test]
fn fast_activations_are_within_their_bounds_of_torch() {
    let (device, sim_worst) = (Some(DeviceChoice::Sim("sim".to_owned())), Some(true));
    let kiln = Kiln::open(Config { sim_worst, ..harness::checked(device) }).unwrap();
    let problems: Vec<Case> =
        serde_json::from_str(include_str!("../data/rnn/torch.json")).expect("well-formed");
    let mut differ = 0;
    for Case { name, mut problem } in problems {
        problem["rnn"]["fast_activations"] = true.into();
        let network = Network::from_json(&problem.to_string()).expect("no network is of f64");
        let inputs = network.initial_values(values(&name, &network.named_inputs())).unwrap();
        let actual = harness::run(&kiln, &network.graph, None, &inputs).unwrap();
        compare(&name, &network, &inputs, &actual, "fast activations");
        problem["rnn"]["fast_activations"] = false.into();
        let slow = Network::from_json(&problem.to_string()).unwrap();
        let slow = harness::run(&kiln, &slow.graph, None, &inputs).unwrap();
        differ += usize::from(slow != actual);
    }
    assert!(differ > 10, "{differ} cases have sigmoid or tanh");
}

/// A missing parameter, and one of another shape, are named.
#[test]
fn parameters_that_do_not_fit_are_named() {
    let (_, network) = cases().swap_remove(0);
    let mut named = values("lstm", &network.named_inputs());
    let inputs = network.named_inputs();
    let of = |name: &str| inputs.iter().find(|tensor| tensor.name == name).expect("there").uid;
    named.get_mut(&of("bias_hh_l0")).expect("there").pop();
    let error = network.initial_values(named.clone()).expect_err("a bias is too short");
    assert_eq!(error.to_string(), "`bias_hh_l0` is [32] with 31 values, expected [32]");
    named.remove(&of("weight_ih_l0"));
    let error = network.initial_values(named.clone()).expect_err("weights are missing");
    assert_eq!(error.to_string(), "weights `weight_ih_l0` are missing");
    let missing = Path::new("examples/torch_lstm/lstm.safetensors");
    let error = Problem::new(network).read_values(missing).expect_err("other shapes");
    assert!(error.to_string().contains("tensor `input` is F32[10, 4, 8]"), "{error}");
}
