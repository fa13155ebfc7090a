//! torch's norms, softmax and pointwise operations on operands that are not all numbers, and its
//! convolutions, pooling, interpolation and CTC losses with their gradients:
//! `tests/data/graphs/torch_*.py` ran them.

use std::path::PathBuf;

use kiln::plan::Problem;
use kiln::reference::{self, Expected};
use kiln::{OperationGraph, TensorDesc, engine, plan};
use serde::Deserialize;

use crate::copies::with_copies;
use crate::harness::{self, Values};
use crate::padded_copies::padded;

/// A unit in the last place of an f32, relative to its value.
const ULP: f64 = 1.0 / (1 << 23) as f64;

#[derive(Deserialize)]
struct Case {
    name: String,
    problem: serde_json::Value,
}

impl Case {
    fn graph(&self) -> OperationGraph {
        let problem = Problem::from_json(&self.problem.to_string());
        let problem = problem.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        problem.only_graph().expect("it is one graph").clone()
    }

    /// Tensors of the case in the container, by uid.
    fn values<'a>(&self, container: &str, tensors: impl Iterator<Item = &'a TensorDesc>) -> Values {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/graphs");
        let path = path.join(container).with_extension("safetensors");
        let name = |tensor: &TensorDesc| format!("{}/{}", self.name, tensor.name);
        let named = tensors.map(|tensor| TensorDesc { name: name(tensor), ..tensor.clone() });
        let named: Vec<TensorDesc> = named.collect();
        plan::read_values(&path, named.iter()).expect("the container has the case's tensors")
    }

    /// Panics where a result is further from torch's than both may be from what is meant, or is a
    /// number where torch's is none, or the other way around.
    fn check(&self, loaded: &Loaded, actual: &Values, what: &str) {
        let Loaded { graph, inputs, torch } = loaded;
        let reference = reference::evaluate(graph, inputs).expect("inputs fit");
        for tensor in graph.outputs() {
            let (torch, own) = (&torch[&tensor.uid], &actual[&tensor.uid]);
            // Functions of torch's vector libraries are off by a unit in the last place at most, or
            // by what is less than a normal number.
            let unit = |value: &f64| if value.is_finite() { value.abs() * ULP } else { 0.0 };
            let least = f64::from(f32::MIN_POSITIVE);
            let allowed = |(bound, value): (&f64, &f64)| 2.0 * bound + unit(value) + least;
            let bounds: Vec<f64> =
                reference[&tensor.uid].bounds.iter().zip(torch).map(allowed).collect();
            let known = |(bound, value): (&f64, &f64)| bound.is_finite() || !value.is_finite();
            let all = bounds.iter().zip(torch).all(known);
            assert!(all, "{}: {tensor}: a number has no bound: {bounds:?}", self.name);
            let differs = |at: &usize| own[*at].is_nan() != torch[*at].is_nan();
            let at = (0..own.len()).find(differs);
            let expected = Expected { values: torch.clone(), bounds };
            let worst = expected.worst(own).filter(|worst| worst.ratio > 1.0);
            let at = at.or(worst.as_ref().map(|worst| worst.index));
            if let Some(at) = at {
                let (own, torch, bound) = (own[at], torch[at], expected.bounds[at]);
                let name = &self.name;
                panic!("{name}: {what}: {tensor}: {own:e} at {at}, torch {torch:e} +- {bound:e}");
            }
        }
    }
}

/// A case's graph and its tensors in the container.
struct Loaded {
    graph: OperationGraph,
    inputs: Values,
    torch: Values,
}

/// Runs the cases of a container on every engine that takes them.
fn run(container: &str, text: &str, count: usize) {
    let cases: Vec<Case> = serde_json::from_str(text).expect("well-formed");
    assert_eq!(cases.len(), count);
    for case in &cases {
        let graph = case.graph();
        let inputs = case.values(container, graph.inputs());
        let torch = case.values(container, graph.outputs());
        let expected = reference::evaluate(&graph, &inputs).expect("inputs fit");
        let meant = expected.into_iter().map(|(uid, expected)| (uid, expected.values)).collect();
        let loaded = Loaded { graph, inputs, torch };
        case.check(&loaded, &meant, "reference");
        let Loaded { graph, inputs, .. } = &loaded;
        let mut ran = 0;
        for kiln in harness::dialects() {
            let target = kiln.device().target();
            for engine in engine::engines().iter() {
                let supported = engine::supported(engine.name(), graph.canonical(), target);
                let Ok(supported) = supported else { continue };
                let config = supported.heuristic();
                let actual = harness::run(kiln, graph, Some(&config), inputs);
                let actual = actual.unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
                case.check(&loaded, &actual, &format!("{config} on {}", target.name));
                ran += 1;
            }
        }
        assert!(ran > 0, "{}", case.name);
    }
}

#[test]
fn engines_give_what_torch_does() {
    run("torch", include_str!("../data/graphs/torch.json"), 11);
}

#[test]
fn convolutions_and_their_gradients_are_those_of_torch() {
    run("convolutions", include_str!("../data/graphs/convolutions.json"), 84);
}

/// The same behind copies of each operand and of both whose channels are not last, or of images of
/// few channels and what they meet, which layers as small as these would not read, on every class
/// of target.
#[test]
fn convolutions_of_copies_are_those_of_torch() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../data/graphs/convolutions.json"))
        .expect("well-formed");
    let targets = ["t4", "a100", "l40s", "h200", "b200", "rtx5090"];
    let mut ran = 0;
    for (at, case) in cases.iter().enumerate() {
        let target = targets[at % targets.len()];
        let Some(kiln) = harness::simulated_by_turns(target, at as u64) else { continue };
        let graph = case.graph();
        let inputs = case.values("convolutions", graph.inputs());
        let torch = case.values("convolutions", graph.outputs());
        let loaded = Loaded { graph, inputs, torch };
        let Loaded { graph, inputs, .. } = &loaded;
        let plan = kiln.plan(graph).unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
        let padded = padded(kiln, graph);
        for (engine, document) in padded.iter().map(|of| (&of.engine, &of.document)) {
            let copied = kiln.plan_from_json(&document.to_string());
            let copied = copied.unwrap_or_else(|error| panic!("{}: {error}", case.name));
            let actual = harness::run_plan(kiln, &copied, inputs);
            let actual = actual.unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
            case.check(&loaded, &actual, &format!("padded copies on {target} by {engine}"));
            ran += 1;
        }
        if !padded.is_empty() {
            continue;
        }
        let operands: Vec<&str> = graph.inputs().map(|of| of.name.as_str()).take(2).collect();
        for operands in [&operands[..], &operands[..1], &operands[1..]] {
            let copy = "pointwise_general{index=32, rank=8}";
            let document = with_copies(&plan.to_json(), operands, copy).to_string();
            let what = format!("copies of {operands:?} on {target}");
            match kiln.plan_from_json(&document) {
                Ok(copied) => {
                    let actual = harness::run_plan(kiln, &copied, inputs);
                    let actual = actual.unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
                    case.check(&loaded, &actual, &what);
                    ran += 1;
                }
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains("no copy of it"), "{}: {what}: {text}", case.name);
                }
            }
        }
    }
    assert!(ran == 0 || ran >= 60, "{ran}");
}

#[test]
fn pooling_and_interpolation_and_their_gradients_are_those_of_torch() {
    run("resample", include_str!("../data/graphs/resample.json"), 108);
}

#[test]
fn ctc_losses_and_their_gradients_are_those_of_torch() {
    run("ctc", include_str!("../data/graphs/ctc.json"), 80);
}
