//! ONNX's own node tests as an outside check: `tests/data/onnx/extract.py` says where they are
//! from, `tests/data/onnx/cases.json` which of them are left out and why. Attention of a later
//! ONNX, which caps scores before the bias, and nodes that move elements (`views.py`) are in files
//! of their own.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use kiln::graph::Op;
use kiln::reference::{self, Expected};
use kiln::{DType, OperationGraph, TensorDesc, engine};
use safetensors::SafeTensors;
use serde::Deserialize;

use crate::harness::{self, Values};

#[derive(Deserialize)]
struct Index {
    count: usize,
    skipped_count: usize,
    cases: Vec<Case>,
    /// Names by reason.
    skipped: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    problem: serde_json::Value,
    #[serde(default)]
    magnitude: f64,
    /// Whether NumPy adds up values on the way.
    #[serde(default)]
    reduces: bool,
}

/// A case with its graph, inputs and ONNX's results.
struct Loaded {
    case: Case,
    graph: OperationGraph,
    inputs: Values,
    expected: Values,
}

impl Loaded {
    /// The same with the product in tf32; `None` where it is not in f32.
    fn in_tf32(&self) -> Option<Loaded> {
        let Loaded { case, inputs, expected, .. } = self;
        let mut problem = case.problem.clone();
        let operations = problem["graph"]["operations"].as_array_mut()?;
        let product = operations.iter_mut().find(|operation| operation["matmul"] == "f32")?;
        product["matmul"] = "tf32".into();
        let graph = OperationGraph::from_json(&problem.to_string()).expect("it is one in f32");
        let name = format!("{} in tf32", case.name);
        let case = Case { name, problem, ..*case };
        Some(Loaded { case, graph, inputs: inputs.clone(), expected: expected.clone() })
    }
}

/// Reads a file of the container.
fn file(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/onnx").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("failed to read `{}`: {error}", path.display()))
}

/// Indices and containers.
const FILES: [&str; 3] = ["cases", "attentions_1_23", "views"];

fn index(name: &str) -> Index {
    serde_json::from_slice(&file(&format!("{name}.json"))).expect("the index is well-formed")
}

fn load() -> Vec<Loaded> {
    FILES.into_iter().flat_map(load_from).collect()
}

fn load_from(name: &str) -> Vec<Loaded> {
    let bytes = file(&format!("{name}.safetensors"));
    let tensors = SafeTensors::deserialize(&bytes).expect("the container is well-formed");
    let load = |case: Case| {
        let graph = OperationGraph::from_json(&case.problem.to_string())
            .unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
        let read = |tensor: &TensorDesc| (tensor.uid, values(&tensors, &case.name, tensor));
        let inputs = graph.inputs().map(read).collect();
        let expected = graph.outputs().map(read).collect();
        Loaded { inputs, expected, graph, case }
    };
    let loaded: Vec<Loaded> = index(name).cases.into_iter().map(load).collect();
    let used: usize = loaded.iter().map(|case| case.inputs.len() + case.expected.len()).sum();
    assert_eq!(used, tensors.len(), "the container holds what the cases use, no more");
    loaded
}

fn values(tensors: &SafeTensors<'_>, case: &str, tensor: &TensorDesc) -> Vec<f64> {
    let name = format!("{case}/{}", tensor.name);
    let view = tensors.tensor(&name).unwrap_or_else(|error| panic!("`{name}`: {error}"));
    let stored = view.dtype().to_string().to_lowercase();
    assert_eq!(stored, tensor.dtype.name(), "{name}");
    let dims: Vec<i64> = view.shape().iter().map(|dim| *dim as i64).collect();
    assert_eq!(dims, tensor.dims, "{name}");
    view.data().chunks_exact(tensor.dtype.bytes()).map(|bytes| tensor.dtype.read(bytes)).collect()
}

/// What ONNX expects, with how far a result may be off: what the reference bounds for the graph,
/// and the error of ONNX's own values.
///
/// Those are computed by NumPy in the type of the output. Where the graph is exact (its bound is
/// 0), so is NumPy: both round every operation correctly. Elsewhere NumPy calls functions that are
/// off by less than 4 ulp (release notes: 3.83 for the logarithm and 2.52 for the exponential of
/// 1.17, 4 for the vector functions of 1.22), and formulas of an exponential and up to three more
/// roundings, which come to no more. An ulp is at most epsilon times the largest value on the way,
/// or the smallest value of the type. Where values are added up, NumPy's result is one of those
/// that the reference bounds: of any order of additions in the same precision.
fn onnx_expected(case: &Loaded, tensor: &TensorDesc, bounds: &[f64]) -> Expected {
    let values = case.expected[&tensor.uid].clone();
    let (epsilon, smallest) = (tensor.dtype.epsilon(), tensor.dtype.smallest());
    let own = if case.case.reduces { 1.0 } else { 0.0 };
    let tolerance = |(value, bound): (&f64, &f64)| match *bound {
        0.0 => 0.0,
        bound => {
            (1.0 + own) * bound + 4.0 * epsilon * value.abs().max(case.case.magnitude) + smallest
        }
    };
    let bounds = values.iter().zip(bounds).map(tolerance).collect();
    Expected { values, bounds }
}

/// A line for each output that is off, for all cases at once: they are independent.
fn disagreements(case: &Loaded, actual: &Values, what: &str) -> Vec<String> {
    let reference = reference::evaluate(&case.graph, &case.inputs).expect("inputs fit the graph");
    let check = |tensor: &TensorDesc| {
        let expected = onnx_expected(case, tensor, &reference[&tensor.uid].bounds);
        let worst = expected.worst(&actual[&tensor.uid])?;
        (worst.ratio > 1.0).then(|| format!("{what} {}: {tensor}: {worst:?}", case.case.name))
    };
    case.graph.outputs().filter_map(check).collect()
}

#[test]
fn the_index_is_complete() {
    for index in FILES.map(index) {
        assert!(index.count > 0);
        assert_eq!(index.cases.len(), index.count);
        assert_eq!(index.skipped.values().flatten().count(), index.skipped_count);
        let skipped = index.skipped.values().flatten();
        let mut names: Vec<&String> = index.cases.iter().map(|case| &case.name).collect();
        names.extend(skipped);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), index.count + index.skipped_count, "a name is listed twice");
    }
}

/// ONNX 1.21 capped scores behind the bias, ONNX 1.23 caps them before it: each order is that of
/// some case, and the other order gives something else.
#[test]
fn both_orders_of_soft_cap_and_bias_are_pinned() {
    for (file, is_last) in FILES.into_iter().zip([true, false]) {
        let (mut pinned, mut told_apart) = (0, 0);
        for mut case in load_from(file) {
            let Some(operation) = case.case.problem["graph"]["operations"].get_mut(0) else {
                continue;
            };
            if operation.get("softcap").is_none() || operation.get("bias").is_none() {
                continue;
            }
            let last = operation.get("softcap_last").is_some();
            assert_eq!(last, is_last, "{}", case.case.name);
            pinned += 1;
            operation["softcap_last"] = (!last).into();
            let graph = OperationGraph::from_json(&case.case.problem.to_string()).unwrap();
            let other = reference::evaluate(&graph, &case.inputs).expect("inputs fit the graph");
            let other = other.into_iter().map(|(uid, expected)| (uid, expected.values)).collect();
            told_apart += usize::from(!disagreements(&case, &other, "other order").is_empty());
        }
        assert!(pinned > 0 && told_apart > 0, "{file}: {pinned} cases, {told_apart} distinguished");
    }
}

#[test]
fn every_storage_type_has_a_case() {
    let cases = load();
    let stored = || cases.iter().flat_map(|case| case.graph.inputs().chain(case.graph.outputs()));
    let tested = |dtype: &DType| stored().any(|tensor| tensor.dtype == *dtype);
    // Floats of 8 bits are what attention stores only, and no case of ONNX computes on integers
    // of 64 bits.
    let stored = DType::ALL.into_iter().filter(|dtype| !dtype.is_f8() && *dtype != DType::I64);
    let missing: Vec<_> = stored.filter(|dtype| !tested(dtype)).collect();
    assert_eq!(missing, []);
}

#[test]
fn the_reference_agrees_with_onnx() {
    let check = |case: &Loaded| {
        let values = reference::evaluate(&case.graph, &case.inputs).expect("inputs fit the graph");
        let values = values.into_iter().map(|(uid, expected)| (uid, expected.values)).collect();
        disagreements(case, &values, "reference")
    };
    let failures: Vec<String> = load().iter().flat_map(check).collect();
    assert!(failures.is_empty(), "{} cases differ:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_device_agrees_with_onnx() {
    let cases = load();
    let mut failures = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        for kiln in harness::dialects_by_turns(at) {
            let arch = kiln.device().target().arch.to_string();
            match harness::run(kiln, &case.graph, None, &case.inputs) {
                Ok(actual) => failures.extend(disagreements(case, &actual, &arch)),
                Err(error) => failures.push(format!("{arch} {}: {error:?}", case.case.name)),
            }
        }
    }
    assert!(failures.is_empty(), "{} cases differ:\n{}", failures.len(), failures.join("\n"));
}

/// Products, convolutions, resamplings and attention on every engine that takes them; those of f32
/// in tf32 too.
#[test]
fn every_engine_agrees_with_onnx_on_products() {
    let is_product = |case: &Loaded| {
        let product = |op: &Op| {
            matches!(op, Op::Matmul(_) | Op::Convolution(_) | Op::Attention(_) | Op::Resample(_))
        };
        case.graph.operations().iter().any(|operation| product(&operation.op))
    };
    let cases: Vec<Loaded> = load().into_iter().filter(is_product).collect();
    let rounded: Vec<Loaded> = cases.iter().filter_map(Loaded::in_tf32).collect();
    let (mut failures, mut ran) = (Vec::new(), BTreeMap::new());
    for (at, case) in cases.iter().chain(&rounded).enumerate() {
        for kiln in harness::dialects_by_turns(at) {
            let target = kiln.device().target();
            let graph = case.graph.canonical();
            for engine in engine::engines() {
                let Ok(supported) = engine.support(graph, target) else { continue };
                let config = supported.heuristic();
                let actual = harness::run(kiln, &case.graph, Some(&config), &case.inputs);
                let actual = actual.unwrap_or_else(|error| panic!("{}: {error:?}", case.case.name));
                failures.extend(disagreements(case, &actual, &format!("{} {config}", target.arch)));
                *ran.entry(engine.name()).or_insert(0) += 1;
            }
        }
    }
    assert!(failures.is_empty(), "{} cases differ:\n{}", failures.len(), failures.join("\n"));
    let engines = [
        "gemm_mma",
        "gemm_simt",
        "convolution_depthwise",
        "convolution_direct",
        "resample_direct",
        "attention_decode",
        "attention_mma",
        "attention_simt",
    ];
    assert!(engines.iter().all(|name| ran.contains_key(name)), "{ran:?}");
}
