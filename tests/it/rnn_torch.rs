//! torch's networks: `tests/data/rnn/torch_cases.py` ran them.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use kiln::device::DeviceChoice;
use kiln::engine::Mode;
use kiln::frontend::FrontEnd;
use kiln::layers::{PersistentRnn, RnnPack};
use kiln::plan::Problem;
use kiln::reference::{self, Expected};
use kiln::rnn::{Network, Role};
use kiln::{Config, DType, Kiln, TensorDesc, plan};
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
    values_in("torch.safetensors", name, tensors)
}

fn values_in(container: &str, name: &str, tensors: &[TensorDesc]) -> HashMap<i64, Vec<f64>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/rnn").join(container);
    let named = tensors
        .iter()
        .map(|tensor| TensorDesc { name: format!("{name}/{}", tensor.name), ..tensor.clone() });
    let named: Vec<TensorDesc> = named.collect();
    plan::read_values(&path, named.iter()).expect("the container has the case's tensors")
}

/// Bounds of a network's results in the type and math that it has, by uid.
fn bounds_of(network: &Network, inputs: &Values) -> Values {
    let expected = reference::evaluate(&network.graph, inputs).expect("inputs fit");
    let bounds = expected.into_iter().map(|(uid, expected)| (uid, expected.bounds));
    network.named_values(&bounds.collect())
}

/// Panics where results of a tensor are further from what is expected than its bounds.
fn expect_near(expected: &Expected, actual: &[f64], what: impl Display) {
    if let Some(worst) = expected.worst(actual) {
        assert!(worst.ratio <= 1.0, "{what}: {worst:?}");
    }
}

/// Panics where a result is further from torch's than both may be from what is meant: both compute
/// in f32, in an order of their own, which is what the reference bounds.
fn compare(name: &str, network: &Network, inputs: &Values, actual: &Values, what: &str) {
    let (actual, bounds) = (network.named_values(actual), bounds_of(network, inputs));
    let outputs = network.named_outputs();
    let torch = values(name, &outputs);
    for tensor in &outputs {
        let bounds = bounds[&tensor.uid].iter().map(|bound| 2.0 * bound).collect();
        let expected = Expected { values: torch[&tensor.uid].clone(), bounds };
        expect_near(&expected, &actual[&tensor.uid], format_args!("{what}: {name}: {tensor}"));
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

/// What a network writes to a tensor, on the device.
fn forward(
    kiln: &Kiln,
    built: &mut PersistentRnn,
    (network, inputs): (&Network, &Values),
    steps: i64,
    role: Role,
) -> Vec<f64> {
    let (mut pack, mut buffers) = (RnnPack::new(), HashMap::new());
    for role in network.roles() {
        let (dtype, _) = network.tensor(role);
        let mut bytes = vec![0; network.bytes(role) as usize];
        for place in network.places.iter().filter(|place| place.role == role) {
            let tensor = network.graph.tensor(place.uid).expect("a place is of the graph");
            let known = inputs.get(&place.uid).into_iter().flatten();
            for (value, at) in known.zip(tensor.offsets()) {
                dtype.write(*value, &mut bytes[(place.offset as usize + at) * dtype.bytes()..]);
            }
        }
        let buffer = kiln.device().upload(&bytes).expect("there is memory");
        pack = pack.with(role, &buffer);
        buffers.insert(role, buffer);
    }
    let bytes = built.prepare(steps, pack.optional()).expect("supported").workspace_bytes();
    let workspace = kiln.device().alloc(bytes).expect("there is memory");
    let pack = pack.with_workspace(&workspace);
    built.forward(&kiln.stream(), steps, &pack).expect("runs");
    kiln.stream().synchronize().expect("runs");
    let dtype = network.tensor(role).0;
    let bytes = buffers[&role].to_vec().expect("it can be read");
    bytes.chunks_exact(dtype.bytes()).map(|element| dtype.read(element)).collect()
}

/// What torch computes of the first steps of a sequence is what it computes of a shorter one. One
/// network runs all lengths: the plan of the last of an octave follows from those before.
#[test]
fn beginnings_of_torchs_sequences_are_sequences() {
    let problems: Vec<Case> =
        serde_json::from_str(include_str!("../data/rnn/torch.json")).expect("well-formed");
    let targets = ["t4", "a100", "h100", "b200", "rtx5090"];
    let modes = [Mode::A, Mode::B, Mode::Fallback];
    let ways = targets.iter().enumerate().flat_map(|(at, target)| {
        modes.iter().filter_map(move |&mode| harness::simulated_by(target, at as u64, mode))
    });
    let ways: Vec<&Kiln> = ways.collect();
    for Case { name, mut problem } in problems {
        if !["lstm", "lstm_stacked", "lstm_projected", "relu"].contains(&name.as_str()) {
            continue;
        }
        let whole = Network::from_json(&problem.to_string()).expect("a case");
        let read = |tensors: &[TensorDesc]| {
            let named = values(&name, tensors).into_iter();
            let name = |uid| tensors.iter().find(|of| of.uid == uid).expect("there").name.clone();
            named.map(|(uid, values)| (name(uid), values)).collect::<HashMap<String, Vec<f64>>>()
        };
        let (given, torch) = (read(&whole.named_inputs()), read(&whole.named_outputs()));
        for kiln in &ways {
            let mut built = kiln.rnn(&whole.rnn, 3).expect("valid");
            for steps in [4, 5, 6, 1] {
                problem["rnn"]["steps"] = steps.into();
                let network = Network::from_json(&problem.to_string()).expect("a case");
                let named = network.named_inputs().into_iter().map(|tensor| {
                    let elements = tensor.dims.iter().product::<i64>() as usize;
                    (tensor.uid, given[&tensor.name][..elements].to_vec())
                });
                let inputs = network.initial_values(named.collect()).expect("as many");
                let y = network.named_outputs().into_iter().find(|of| of.name == "output");
                let y = y.expect("there is one");
                let bounds = &bounds_of(&network, &inputs)[&y.uid];
                let expected = Expected {
                    values: torch["output"][..bounds.len()].to_vec(),
                    bounds: bounds.iter().map(|bound| 2.0 * bound).collect(),
                };
                let actual = forward(kiln, &mut built, (&network, &inputs), steps, Role::Output);
                let target = kiln.device().target();
                expect_near(&expected, &actual, format_args!("{name}, {steps} steps, {target}"));
            }
        }
    }
}

/// A case of `tests/data/rnn/torch_wide.py`.
#[derive(Deserialize)]
struct Wide {
    name: String,
    lengths: Vec<f64>,
    problem: serde_json::Value,
}

/// The inputs of `tests/data/rnn/torch_wide.py`.
fn hashed(tensor: &TensorDesc) -> Vec<f64> {
    let scale = match tensor.name.split('_').next() {
        Some("weight") => 0.125,
        Some("bias") => 0.25,
        Some("h") => 0.5,
        _ => 1.0,
    };
    harness::hashed(tensor, scale)
}

/// A wide network of a type with its inputs, and what torch computes in double precision within the
/// reference's bounds.
struct Loaded {
    network: Network,
    inputs: Values,
    expected: HashMap<i64, Expected>,
}

impl Wide {
    fn all() -> Vec<Wide> {
        serde_json::from_str(include_str!("../data/rnn/torch_wide.json")).expect("well-formed")
    }

    fn load(&self, dtype: &str, math: Option<&str>) -> Loaded {
        let mut problem = self.problem.clone();
        problem["rnn"]["dtype"] = dtype.into();
        if let Some(math) = math {
            problem["rnn"]["math"] = math.into();
        }
        let network = Network::from_json(&problem.to_string()).expect("a case");
        let named = network.named_inputs().into_iter().map(|tensor| match &*tensor.name {
            "lengths" => (tensor.uid, self.lengths.clone()),
            _ => (tensor.uid, hashed(&tensor)),
        });
        let inputs = network.initial_values(named.collect()).expect("as many");
        let mut bounds = bounds_of(&network, &inputs);
        let outputs = network.named_outputs().into_iter();
        let written = outputs.map(|of| TensorDesc { dtype: DType::F32, ..of });
        let written: Vec<TensorDesc> = written.collect();
        let torch = values_in("torch_wide.safetensors", &self.name, &written);
        let expected = torch.into_iter().map(|(uid, values)| {
            let bounds = bounds.remove(&uid).expect("a bound for each");
            (uid, Expected { values, bounds })
        });
        let expected = expected.collect();
        Loaded { network, inputs, expected }
    }
}

impl Loaded {
    fn expect(&self, actual: &Values, what: &str) {
        let actual = self.network.named_values(actual);
        for tensor in &self.network.named_outputs() {
            let (expected, actual) = (&self.expected[&tensor.uid], &actual[&tensor.uid]);
            expect_near(expected, actual, format_args!("{what}: {tensor}"));
        }
    }
}

/// Networks wide enough for several blocks and warps, in every type, on every class of target.
#[test]
fn wide_networks_of_every_type_agree_with_torch() {
    let targets = ["t4", "a100", "h100", "b200", "rtx5090"];
    let modes = [Mode::A, Mode::B, Mode::Fallback];
    let of = |target: &&'static str| modes.map(|mode| (*target, mode));
    let ways: Vec<(&str, Mode)> = targets.iter().flat_map(of).collect();
    let mut runs = 0;
    for case in Wide::all() {
        for (dtype, math) in [("f16", None), ("bf16", None), ("f32", None), ("f32", Some("tf32"))] {
            let loaded = case.load(dtype, math);
            for (at, (target, mode)) in ways.iter().enumerate() {
                // Those of a case in all types are of four targets, and of all modes.
                if !harness::all_are_wanted() && 4 * runs % ways.len() != at {
                    continue;
                }
                let seed = (runs + at) as u64;
                let Some(kiln) = harness::simulated_by(target, seed, *mode) else { continue };
                let what = format!("{}, {dtype}, {math:?}, {target}, {mode:?}", case.name);
                let actual = harness::run(kiln, &loaded.network.graph, None, &loaded.inputs);
                loaded.expect(&actual.unwrap_or_else(|error| panic!("{what}: {error:?}")), &what);
            }
            runs += 1;
        }
    }
    assert_eq!(runs, 20);
}

/// Step by step, on every engine for the products of a step, under several orders of warps.
#[test]
fn products_of_steps_agree_with_torch() {
    let mut runs = 0;
    for case in Wide::all() {
        for (dtype, engines) in [("f16", 0..3), ("bf16", 1..3)] {
            let loaded = case.load(dtype, None);
            for tensor_cores in engines {
                let seed = (runs % 8) as u64;
                let Some(kiln) = harness::simulated_by("h100", seed, Mode::A) else { continue };
                let plan = kiln.plan(&loaded.network.graph).expect("supported").to_json();
                let mut plan: serde_json::Value = serde_json::from_str(&plan).expect("JSON");
                let step = format!("rnn_step{{tensor_cores={tensor_cores}}}");
                for part in plan["parts"].as_array_mut().expect("a list") {
                    let config = part["config"].as_str().expect("a text");
                    if config.starts_with("rnn_") {
                        part["config"] = step.as_str().into();
                        runs += 1;
                    }
                }
                let what = format!("{}, {dtype}, {step}", case.name);
                let actual = kiln
                    .plan_from_json(&plan.to_string())
                    .and_then(|plan| harness::run_plan(kiln, &plan, &loaded.inputs));
                loaded.expect(&actual.unwrap_or_else(|error| panic!("{what}: {error:?}")), &what);
            }
        }
    }
    assert!(harness::kiln().device().kind() != "sim" || runs == 30, "{runs} layers");
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
