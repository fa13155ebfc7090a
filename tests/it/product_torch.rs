//! torch's products, with bias and GELU and without: `tests/data/graphs/torch_products.py` ran it.

use std::path::PathBuf;

use kiln::engine::Mode;
use kiln::expr::{self, Pointwise};
use kiln::graph::Matmul;
use kiln::reference::{self, Expected};
use kiln::{DType, OperationGraph, TensorDesc, plan};
use serde::Deserialize;

use crate::harness::{self, Values};

#[derive(Deserialize)]
struct Case {
    name: String,
    fused: bool,
    /// Rows, columns, K.
    shape: [i64; 3],
}

impl Case {
    fn graph(&self, dtype: DType) -> OperationGraph {
        let [rows, columns, k] = self.shape;
        let mut graph = OperationGraph::builder();
        let a = graph.input("a", &[1, rows, k], dtype);
        let b = graph.input("b", &[1, k, columns], dtype);
        let mut c = graph.matmul(Matmul::default(), a, b).unwrap();
        if self.fused {
            let bias = graph.input("bias", &[1, 1, columns], dtype);
            c = graph.pointwise(Pointwise::new(expr::Mode::Add), &[c, bias]).unwrap();
            c = graph.pointwise(Pointwise::new(expr::Mode::GeluFwd), &[c]).unwrap();
        }
        graph.output(c, "c", dtype);
        graph.build().unwrap()
    }

    /// torch's result.
    fn torch(&self, c: &TensorDesc) -> Vec<f64> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let path = path.join("tests/data/graphs/products.safetensors");
        let named = TensorDesc { name: format!("{}/c", self.name), dtype: DType::F32, ..c.clone() };
        let values = plan::read_values(&path, [&named].into_iter());
        values.expect("the container has the case's result")[&c.uid].clone()
    }
}

/// On every class of target, by every heuristic, in several orders of warps.
#[test]
fn products_are_those_of_torch() {
    let text = include_str!("../data/graphs/products.json");
    let cases: Vec<Case> = serde_json::from_str(text).expect("well-formed");
    assert_eq!(cases.len(), 16);
    let targets = ["t4", "a100", "rtx4090", "h200", "b200", "rtx5090"];
    let modes = [Mode::A, Mode::B, Mode::Fallback];
    let mut compared = 0;
    for (number, case) in cases.iter().enumerate() {
        for dtype in [DType::F16, DType::Bf16, DType::F32] {
            let graph = case.graph(dtype);
            let c = graph.outputs().next().expect("there is one");
            let scale = |of: &TensorDesc| if of.name == "b" { 0.25 } else { 1.0 };
            let inputs: Values =
                graph.inputs().map(|of| (of.uid, harness::hashed(of, scale(of)))).collect();
            // What rounding and another order of additions may do; torch's own is that of f32.
            let bounds =
                reference::evaluate(&graph, &inputs).expect("inputs fit")[&c.uid].bounds.clone();
            let values = case.torch(c);
            let bounds =
                bounds.iter().zip(&values).map(|(of, at)| of + at.abs() * f64::from(f32::EPSILON));
            let expected = Expected { bounds: bounds.collect(), values };
            for (at, target) in targets.iter().enumerate() {
                let mode = modes[(at + number) % modes.len()];
                let seed = (at + number) as u64;
                let Some(kiln) = harness::simulated_by(target, seed, mode) else { continue };
                let what = format!("{}, {dtype}, {target}, {mode:?}", case.name);
                let actual = harness::run(kiln, &graph, None, &inputs);
                let actual = actual.unwrap_or_else(|error| panic!("{what}: {error:?}"));
                let worst = expected.worst(&actual[&c.uid]);
                let ratio = worst.as_ref().map_or(0.0, |worst| worst.ratio);
                assert!(ratio <= 1.0, "{what}: {worst:?}");
                compared += 1;
            }
        }
    }
    assert!(harness::kiln().device().kind() != "sim" || compared == 288, "{compared}");
}
