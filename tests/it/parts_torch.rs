//! Graphs that run as several parts, with torch's results: products behind prologues, which are
//! kernels of their own, and convolutions one behind the other, with channels last and first.
//! `tests/data/graphs/torch_parts.py` ran them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kiln::engine::Mode;
use kiln::plan::Problem;
use kiln::reference::{self, Expected};
use kiln::{DType, TensorDesc, plan};
use serde::Deserialize;

use crate::harness::{self, Values};

#[derive(Deserialize)]
struct Case {
    name: String,
    /// Of each result so many rows make one that is written down.
    every: usize,
    /// What inputs are multiples of 1/128 of, by name.
    scales: BTreeMap<String, f64>,
    problem: serde_json::Value,
}

impl Case {
    /// torch's results, by uid: each so many-th row.
    fn torch<'a>(&self, outputs: impl Iterator<Item = &'a TensorDesc>) -> Values {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/graphs");
        let written = |of: &TensorDesc| {
            let mut dims = of.dims.clone();
            dims[0] = (dims[0] - 1) / self.every as i64 + 1;
            TensorDesc::packed(of.uid, format!("{}/{}", self.name, of.name), &dims, DType::F32)
        };
        let written: Vec<TensorDesc> = outputs.map(written).collect();
        let path = path.join("parts.safetensors");
        plan::read_values(&path, written.iter()).expect("the container has the case's results")
    }

    /// The rows of a tensor that torch's results have.
    fn rows(&self, of: &TensorDesc, values: &[f64]) -> Vec<f64> {
        let row = of.dims[1..].iter().product::<i64>() as usize;
        values.chunks(row).step_by(self.every).flatten().copied().collect()
    }
}

/// On every class of target, by rules and by the cost model, in several orders of warps.
#[test]
fn graphs_of_several_parts_give_what_torch_does() {
    let text = include_str!("../data/graphs/parts.json");
    let cases: Vec<Case> = serde_json::from_str(text).expect("well-formed");
    assert_eq!(cases.len(), 12);
    let targets = ["t4", "a100", "rtx4090", "h200", "b200", "rtx5090"];
    let mut whole = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let problem = Problem::from_json(&case.problem.to_string());
        let problem = problem.unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let graph = problem.only_graph().expect("it is one graph");
        let inputs: Values =
            graph.inputs().map(|of| (of.uid, harness::hashed(of, case.scales[&of.name]))).collect();
        let reference = reference::evaluate(graph, &inputs).expect("inputs fit");
        let torch = case.torch(graph.outputs());
        for (at, target) in targets.into_iter().enumerate() {
            // Three of the targets, by turns.
            if (at + number) % 2 > 0 && !harness::all_are_wanted() {
                continue;
            }
            let mode = [Mode::A, Mode::B][(at + number) / 2 % 2];
            let kiln = harness::simulated_by(target, (at + number) as u64, mode);
            let Some(kiln) = kiln else { continue };
            let what = format!("{}, {target}, {mode:?}", case.name);
            let plan = kiln.plan(graph).unwrap_or_else(|error| panic!("{what}: {error:?}"));
            if plan.parts().len() == 1 {
                whole.push((case.name.as_str(), target));
            }
            let actual = harness::run_plan(kiln, &plan, &inputs);
            let actual = actual.unwrap_or_else(|error| panic!("{what}: {error:?}"));
            for of in graph.outputs() {
                let values = torch[&of.uid].clone();
                let bounds = case.rows(of, &reference[&of.uid].bounds);
                // torch's own results are rounded to f32.
                let unit = |value: &f64| value.abs() * f64::from(f32::EPSILON);
                let bounds = bounds.iter().zip(&values).map(|(of, at)| of + unit(at)).collect();
                let worst = Expected { bounds, values }.worst(&case.rows(of, &actual[&of.uid]));
                let ratio = worst.as_ref().map_or(0.0, |worst| worst.ratio);
                assert!(ratio <= 1.0, "{what}: {of}: {worst:?}");
            }
        }
    }
    // All are split but a short prologue, and ones whose tiles are all computed at once.
    let stays = |(name, target): &(&str, &str)| {
        let computed = name.starts_with("functions_of_a") && ["b200", "h200"].contains(target);
        *name == "swiglu" || computed
    };
    assert!(whole.iter().all(stays), "{whole:?}");
}
