//! torch's attention with masks of serving stacks: `tests/data/attention/torch_masks.py` ran it.

use std::collections::HashMap;
use std::path::PathBuf;

use kiln::plan::Problem;
use kiln::reference::{self, Expected};
use kiln::{DType, OperationGraph, TensorDesc, engine, plan};
use serde::Deserialize;

use crate::attention::cases::ENGINES;
use crate::harness::{self, Values};

#[derive(Deserialize)]
struct Case {
    name: String,
    /// Tensors that are another case's.
    shared: HashMap<String, String>,
    problem: serde_json::Value,
    /// How far torch is from its own results, in another type.
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
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let path = path.join("tests/data/attention/masks.safetensors");
        let owner = |name: &String| self.shared.get(name).unwrap_or(&self.name);
        let name = |tensor: &TensorDesc| format!("{}/{}", owner(&tensor.name), tensor.name);
        let named = tensors.map(|tensor| TensorDesc { name: name(tensor), ..tensor.clone() });
        let named: Vec<TensorDesc> = named.collect();
        plan::read_values(&path, named.iter()).expect("the container has the case's tensors")
    }

    /// Panics where results are further from torch's than FlashAttention's tests allow, and their
    /// own bounds where they have some; NaN is. What they are compared with is itself off by the
    /// error.
    fn check(&self, actual: &[f64], bounds: Option<&[f64]>, torch: &[f64], what: &str) {
        assert_eq!(actual.len(), torch.len());
        for (at, (own, torch)) in actual.iter().zip(torch).enumerate() {
            let bound = bounds.map_or(0.0, |bounds| bounds[at]);
            let allowed = 3.0 * self.error + self.atol + bound;
            let near = (own - torch).abs() <= allowed;
            let name = &self.name;
            assert!(near, "{name}: {what}: {own} at {at}, torch has {torch}, allowed {allowed:e}");
        }
    }
}

#[test]
fn masked_keys_weigh_what_they_do_in_torch() {
    let text = include_str!("../../data/attention/masks.json");
    let cases: Vec<Case> = serde_json::from_str(text).expect("well-formed");
    assert_eq!(cases.len(), 14);
    let mut ran = [0; ENGINES.len()];
    for (at, case) in cases.iter().enumerate() {
        let graph = case.graph();
        let inputs = case.values(graph.inputs());
        let o = graph.outputs().next().expect("attention has a result");
        let torch = TensorDesc { dtype: DType::F32, ..o.clone() };
        let torch = &case.values([&torch].into_iter())[&o.uid];
        let reference = reference::evaluate(&graph, &inputs).expect("inputs fit the graph");
        // In f64 masked keys of a row that has no others differ, which a bound admits.
        let Expected { values, bounds } = &reference[&o.uid];
        case.check(values, Some(bounds), torch, "reference");
        for kiln in harness::dialects_by_turns(at) {
            let target = kiln.device().target();
            for (name, count) in ENGINES.iter().zip(&mut ran) {
                let supported = engine::supported(name, graph.canonical(), target);
                let Ok(supported) = supported else { continue };
                let config = supported.heuristic();
                let outputs = harness::run(kiln, &graph, Some(&config), &inputs);
                let outputs = outputs.unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
                let what = format!("{config} on {}", target.name);
                case.check(&outputs[&o.uid], None, torch, &what);
                harness::compare(&graph, &inputs, &outputs, &what);
                *count += 1;
            }
        }
    }
    // The ordinary units take everything, tensor cores what is in bf16.
    let all = cases.len() * harness::dialects_by_turns(0).len();
    for (name, count) in ENGINES.iter().zip(ran) {
        let least = if name.ends_with("simt") { all } else { 1 };
        assert!(count >= least, "{name} ran {count} times");
    }
}
