//! `kiln replay` of kernels that compute a problem together: what the launches before one left in
//! memory is captured with it and restored.

use std::fs;
use std::path::{Path, PathBuf};

use kiln::engine;
use kiln::graph::{Attention, AttentionShape, MatmulMath};
use kiln::rnn::{CellKind, CellOptions};
use kiln::{Config, DType, Kiln, OperationGraph};
use serde_json::{Value, json};

use crate::attention::cases::{self as attention, Storage};
use crate::cli::{self, fails};
use crate::gemm::cases as gemm;
use crate::gemm::cases::Case;
use crate::golden::centred;
use crate::harness::{self, Values};
use crate::recurrence;

type Problem = (OperationGraph, Values);

fn product() -> Problem {
    let graph = Case::new(MatmulMath::F32, [DType::F32; 3], [40, 36, 100]).graph();
    let inputs = gemm::inputs(&graph);
    (graph, inputs)
}

fn columns() -> Problem {
    let graph = centred([2, 90, 72]);
    let inputs = graph.inputs().map(|of| (of.uid, harness::fill(of, 3, 1.0))).collect();
    (graph, inputs)
}

fn decode() -> Problem {
    let (batches, heads, kv_heads, depth, width) = (2, 2, 1, 64, 64);
    let shape = AttentionShape { batches, heads, kv_heads, queries: 3, keys: 200, depth, width };
    let storage = [DType::Bf16, DType::Bf16, DType::Bf16, DType::F32].map(Storage::packed);
    let op = Attention::new(MatmulMath::F32);
    let case = attention::case_of(op, shape, storage, [true; 4], 3);
    (case.graph, case.inputs)
}

fn lstm([batch, units]: [i64; 2]) -> Problem {
    let op =
        recurrence::layer(CellKind::Lstm, CellOptions::default(), MatmulMath::F32, [batch, units]);
    let graph = recurrence::graph(&op, 5, DType::F16);
    let values = recurrence::values(&graph, &op, 5);
    (graph, values)
}

/// Runs a problem with these knobs, and returns the dumps of its kernels in the order of launches.
fn dumped(
    folder: &Path,
    (graph, inputs): Problem,
    name: &str,
    knobs: &[(&str, i64)],
) -> Vec<PathBuf> {
    let device = Some("sim".parse().expect("a device"));
    let (dump, dump_tensors) = (Some(folder.to_owned()), Some(true));
    let config = Config { device, dump, dump_tensors, ..harness::config() };
    let kiln = Kiln::open(config).expect("the simulated device opens");
    let target = kiln.device().target();
    let own = engine::supported(name, graph.canonical(), target).unwrap().heuristic();
    let config = knobs.iter().fold(own, |config, (knob, value)| config.with(knob, *value));
    let plan = kiln.plan_with(&graph, &config).unwrap();
    let actual = harness::run_plan(&kiln, &plan, &inputs).unwrap();
    harness::compare(&graph, &inputs, &actual, name);
    plan.kernels().iter().map(|kernel| folder.join(kernel.identifier())).collect()
}

/// Replays on the simulator: exit code and report.
fn replay(own: &Path, options: &[&str]) -> (Option<i32>, Value) {
    let own = own.to_str().expect("temporary folders are UTF-8");
    let options = [&["replay", own, "--json", "--device", "sim"], options].concat();
    let output = cli::kiln(&options);
    let text = String::from_utf8(output.stdout).expect("reports are UTF-8");
    assert!(!text.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code(), cli::json(&text))
}

/// Changes what launches before this one left in a buffer.
fn disturb(own: &Path, argument: usize) {
    let path = own.join("before.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let spec: Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    let offsets = &spec[argument.to_string()]["data_offsets"];
    let [start, end] = [0, 1].map(|at| 8 + header + offsets[at].as_u64().unwrap() as usize);
    bytes[start..end].iter_mut().for_each(|byte| *byte ^= 0x41);
    fs::write(path, bytes).unwrap();
}

/// Dumps and replays a problem that so many launches compute, and returns the last one's dump.
fn holds(
    folder: &Path,
    problem: Problem,
    name: &str,
    knobs: &[(&str, i64)],
    launches: usize,
) -> PathBuf {
    let kernels = dumped(folder, problem, name, knobs);
    assert_eq!(kernels.len(), launches, "{name} {knobs:?}: {kernels:?}");
    for (position, own) in kernels.iter().enumerate() {
        // A kernel that is launched again dumps over itself.
        if kernels[position + 1..].contains(own) {
            continue;
        }
        let (code, report) = replay(own, &["--sanitize"]);
        assert_eq!(code, Some(0), "{name} {knobs:?}: {report:#}");
        assert_eq!(report["position"], json!({"launch": position, "of": launches}));
        assert_eq!(report["compared_with"], "captured", "{report:#}");
        let compared = ["differences", "scratch"].map(|of| report[of].as_array().unwrap());
        assert!(compared.iter().any(|of| !of.is_empty()), "nothing is compared: {report:#}");
        let checked = !report["checks"].as_array().unwrap().is_empty();
        assert_eq!(checked, position + 1 == launches, "{report:#}");
    }
    kernels.last().unwrap().clone()
}

/// What a kernel reads of the others' memory decides its result, and without it there is none.
fn needs_memory(own: &Path) {
    let shown = own.to_str().unwrap();
    fails(2, "it continues from the captured inputs", &["replay", shown, "--random", "9"]);
    let spec: Value = cli::json(&fs::read_to_string(own.join("spec.json")).unwrap());
    let arguments = spec["launch"]["arguments"].as_array().unwrap();
    let scratch = (0..arguments.len()).filter(|at| arguments[*at]["passed"] == "scratch");
    scratch.for_each(|at| disturb(own, at));
    let (code, report) = replay(own, &[]);
    assert_eq!(code, Some(1), "{report:#}");
    let before = own.join("before.safetensors");
    fs::copy(own.join("inputs.safetensors"), &before).unwrap();
    fails(2, "before.safetensors` has 0 bytes of argument ", &["replay", shown]);
    fs::remove_file(before).unwrap();
    fails(2, "the dump has not the memory that the others left", &["replay", shown]);
}

#[test]
fn split_sums_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path();
    needs_memory(&holds(own, product(), "gemm_simt", &[("split_k", 2)], 2));
    let knobs = [("split", 2), ("threads_y", 16)];
    needs_memory(&holds(own, columns(), "reduction_columns", &knobs, 2));
}

#[test]
fn split_attention_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let knobs = [("cluster", 1), ("split", 2)];
    needs_memory(&holds(folder.path(), decode(), "attention_decode", &knobs, 2));
}

#[test]
fn grids_of_recurrent_layers_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path();
    let counter = [("group_ctas", 2), ("exchange", 0)];
    needs_memory(&holds(own, lstm([20, 128]), "rnn_grid", &counter, 2));
    // Words with a tag: a garbled tag is that of no step.
    holds(own, lstm([5, 64]), "rnn_grid", &[("group_ctas", 2), ("exchange", 1)], 2);
}

#[test]
fn layers_of_a_launch_per_step_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    holds(folder.path(), lstm([5, 64]), "rnn_step", &[], 11);
}
