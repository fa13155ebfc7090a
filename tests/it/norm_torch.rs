//! Gradients of norms of long rows against torch: `tests/data/graphs/torch_norms.py` ran them.

use std::path::PathBuf;

use kiln::engine::{EngineConfig, Mode};
use kiln::graph::{NormBackward, NormMode, Op};
use kiln::reference::{self, Expected};
use kiln::{DType, OperationGraph, TensorDesc, plan};
use serde::Deserialize;

use crate::harness::{self, Values};
use crate::rows;

/// Between the columns that torch's results have.
const STEP: usize = 13;

#[derive(Deserialize)]
struct Case {
    name: String,
    kind: String,
    rows: i64,
    columns: i64,
}

impl Case {
    fn graph(&self, dtype: DType) -> OperationGraph {
        let mode = match &*self.kind {
            "layer" => NormMode::Layer,
            "rms" => NormMode::Rms,
            kind => panic!("{kind}"),
        };
        let bias = mode.centred();
        let op = NormBackward { statistics: false, bias, ..NormBackward::new(mode) };
        rows::norm(Op::NormBackward(op), dtype, [self.rows, self.columns])
    }

    /// Some columns of a result, as torch computes them, within the reference's bounds.
    fn expected(&self, tensor: &TensorDesc, bounds: &[f64]) -> Expected {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/graphs");
        let dims = [tensor.dims[0], (self.columns as usize).div_ceil(STEP) as i64];
        let name = format!("{}/{}", self.name, tensor.name.trim_start_matches("out_"));
        let written = TensorDesc::packed(tensor.uid, &name, &dims, DType::F32);
        let mut values =
            plan::read_values(&folder.join("norms.safetensors"), [&written].into_iter())
                .expect("the container has the case's tensors");
        Expected {
            values: values.remove(&tensor.uid).expect("it was read"),
            bounds: self.some(bounds),
        }
    }

    /// Elements of the columns that torch's results have.
    fn some(&self, elements: &[f64]) -> Vec<f64> {
        let rows = elements.chunks(self.columns as usize);
        rows.flat_map(|row| row.iter().step_by(STEP)).copied().collect()
    }
}

/// In every type and by every heuristic, on every class of target; and with rows in shared memory
/// or in the registers of a cluster where others are chosen for so few.
#[test]
fn gradients_of_long_rows_agree_with_torch() {
    let cases: Vec<Case> =
        serde_json::from_str(include_str!("../data/graphs/norms.json")).expect("well-formed");
    let staged = |threads: i64, stages: i64| {
        let text = format!(
            "reduction{{cluster=1, grid=1, items=4, split=1, stages={stages}, threads={threads}, \
             threads_row={threads}, vector=8}}"
        );
        Some(text.parse::<EngineConfig>().expect("a config"))
    };
    let clustered = |cluster: i64, threads: i64, items: i64| {
        let text = format!(
            "reduction{{cluster={cluster}, grid=1, items={items}, split=1, stages=0, \
             threads={threads}, threads_row={threads}, vector=8}}"
        );
        Some(text.parse::<EngineConfig>().expect("a config"))
    };
    let chosen = ["t4", "a100", "rtx4090", "h200", "b200", "rtx5090"]
        .into_iter()
        .flat_map(|target| [Mode::A, Mode::B, Mode::Fallback].map(|mode| (target, mode, None)));
    let ways: Vec<(&str, Mode, Option<EngineConfig>)> = chosen
        .chain([
            ("a100", Mode::A, staged(512, 1)),
            ("h200", Mode::A, staged(512, 2)),
            ("b200", Mode::A, staged(512, 2)),
            ("h200", Mode::A, clustered(4, 256, 2)),
            ("b200", Mode::A, clustered(4, 256, 2)),
            ("rtx5090", Mode::A, clustered(4, 256, 2)),
        ])
        .collect();
    let (mut runs, mut compared) = (0, 0);
    for case in &cases {
        for dtype in [DType::F16, DType::Bf16, DType::F32] {
            let graph = case.graph(dtype);
            let value = |tensor: &TensorDesc| match &*tensor.name {
                "epsilon" => vec![1e-3],
                _ => harness::hashed(tensor, 1.0),
            };
            let inputs: Values = graph.inputs().map(|of| (of.uid, value(of))).collect();
            let reference = reference::evaluate(&graph, &inputs).expect("inputs fit");
            let outputs: Vec<&TensorDesc> = graph.outputs().collect();
            let expected: Vec<Expected> =
                outputs.iter().map(|of| case.expected(of, &reference[&of.uid].bounds)).collect();
            for (at, (target, mode, config)) in ways.iter().enumerate() {
                runs += 1;
                // Rows of f32 are twice as long as those of 16 bits.
                let is_given = config.is_some();
                if (is_given && dtype == DType::F32)
                    || (!is_given && !harness::all_are_wanted() && runs % 4 != 0)
                {
                    continue;
                }
                let Some(kiln) = harness::simulated_by(target, at as u64, *mode) else { continue };
                let what = format!("{}, {dtype}, {target}, {mode:?}, {config:?}", case.name);
                let actual = harness::run(kiln, &graph, config.as_ref(), &inputs);
                let actual = actual.unwrap_or_else(|error| panic!("{what}: {error:?}"));
                for (tensor, expected) in outputs.iter().zip(&expected) {
                    let worst = expected.worst(&case.some(&actual[&tensor.uid]));
                    let ratio = worst.as_ref().map_or(0.0, |worst| worst.ratio);
                    assert!(ratio <= 1.0, "{what}: {tensor}: {worst:?}");
                    compared += 1;
                }
            }
        }
    }
    assert!(harness::kiln().device().kind() != "sim" || compared >= 100, "{compared}");
}
