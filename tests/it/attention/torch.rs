//! torch's attention: `tests/data/attention/torch_cases.py` ran it.

use std::path::PathBuf;

use kiln::plan::Problem;
use kiln::{DType, Kiln, OperationGraph, TensorDesc, engine, plan, reference};
use serde::Deserialize;

use crate::attention::cases::ENGINES;
use crate::harness::{self, Values};

#[derive(Deserialize)]
struct Case {
    name: String,
    problem: serde_json::Value,
    /// How far torch is from its results in f64 when it computes in the case's type.
    error: f64,
    /// How far results are when they are rounded twice, doubled.
    atol: f64,
}

impl Case {
    fn graph(&self) -> OperationGraph {
        let problem = Problem::from_json(&self.problem.to_string());
        let problem = problem.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        problem.only_graph().expect("it is one graph").clone()
    }

    /// Tensors of the case in the container, by uid.
    fn values<'a>(&self, tensors: impl Iterator<Item = &'a TensorDesc>) -> Values {
        values("torch", &self.name, tensors)
    }

    /// Panics where results are further from torch's in f64 than FlashAttention's tests allow.
    fn check(&self, actual: &[f64], exact: &[f64], what: &str) {
        let off = actual.iter().zip(exact).map(|(own, exact)| (own - exact).abs());
        let (worst, allowed) = (off.fold(0.0, f64::max), 2.0 * self.error + self.atol);
        assert!(actual.iter().all(|value| value.is_finite()), "{}: {what}", self.name);
        assert!(worst <= allowed, "{}: {what}: off by {worst:e}, allowed {allowed:e}", self.name);
    }
}

/// Tensors of a case in a container of `tests/data/attention`, by uid.
pub fn values<'a>(
    container: &str,
    case: &str,
    tensors: impl Iterator<Item = &'a TensorDesc>,
) -> Values {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let path = path.join("tests/data/attention").join(container).with_extension("safetensors");
    let name = |tensor: &TensorDesc| format!("{case}/{}", tensor.name);
    let named = tensors.map(|tensor| TensorDesc { name: name(tensor), ..tensor.clone() });
    let named: Vec<TensorDesc> = named.collect();
    plan::read_values(&path, named.iter()).expect("the container has the case's tensors")
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("../../data/attention/torch.json")).expect("well-formed")
}

/// Runs a case on every engine that takes it; counts those.
fn run(case: &Case, kiln: &Kiln, ran: &mut [usize; ENGINES.len()]) {
    let graph = case.graph();
    let inputs = case.values(graph.inputs());
    let o = graph.outputs().next().expect("attention has a result");
    let exact = TensorDesc { dtype: DType::F64, ..o.clone() };
    let exact = &case.values([&exact].into_iter())[&o.uid];
    let target = kiln.device().target();
    for (name, count) in ENGINES.iter().zip(ran) {
        let supported = engine::supported(name, graph.canonical(), target);
        let Ok(supported) = supported else { continue };
        let config = supported.heuristic();
        let outputs = harness::run(kiln, &graph, Some(&config), &inputs);
        let outputs = outputs.unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
        case.check(&outputs[&o.uid], exact, &format!("{config} on {}", target.name));
        *count += 1;
    }
}

#[test]
fn every_engine_is_as_near_as_flash_attention_must_be() {
    let cases = cases();
    assert_eq!(cases.len(), 36);
    let mut ran = [0; ENGINES.len()];
    for (at, case) in cases.iter().enumerate() {
        let graph = case.graph();
        let inputs = case.values(graph.inputs());
        let o = graph.outputs().next().expect("attention has a result");
        let exact = TensorDesc { dtype: DType::F64, ..o.clone() };
        let exact = &case.values([&exact].into_iter())[&o.uid];
        let reference = reference::evaluate(&graph, &inputs).expect("inputs fit the graph");
        case.check(&reference[&o.uid].values, exact, "reference");
        harness::dialects_by_turns(at).into_iter().for_each(|kiln| run(case, kiln, &mut ran));
    }
    // Tensor cores take all of f16 and bf16, the ordinary units everything; TMA copies ask for
    // more.
    let dialects = harness::dialects_by_turns(0).len();
    let [all, half] = [cases.len(), cases.len() / 3 * 2].map(|count| count * dialects);
    for (name, count) in ENGINES.iter().zip(ran).filter(|(name, _)| **name != "attention_wgmma") {
        assert_eq!(count, if name.ends_with("simt") { all } else { half }, "{name}");
    }
}

/// The oldest tensor cores take f16 alone.
#[test]
fn tensor_cores_of_turing_are_as_near() {
    let mut ran = [0; ENGINES.len()];
    let cases: Vec<Case> = cases().into_iter().filter(|of| of.name.ends_with("_f16")).collect();
    for (case, at) in cases.iter().zip(0..) {
        let Some(kiln) = harness::simulated_by_turns("t4", at) else { return };
        run(case, kiln, &mut ran);
    }
    for (name, count) in ENGINES.iter().zip(ran) {
        let is_taken = *name != "attention_wgmma";
        assert_eq!(count, if is_taken { cases.len() } else { 0 }, "{name}");
    }
}
