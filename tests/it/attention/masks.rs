//! The constants with which serving stacks mask keys: added to scores or selected by their program,
//! with left padding, with gaps and in every key of a row, as torch computes them. Scores are exact
//! here, so that nothing but the softmax can be off.

use kiln::engine::{self, EngineConfig};
use kiln::target::Target;
use kiln::{DType, Kiln, OperationGraph, reference};
use serde_json::json;

use crate::attention::cases::ENGINES;
use crate::harness::{self, Values};

/// A head each: finfo(f32).min, finfo(bf16).min and finfo(f16).min of HF transformers and vLLM,
/// powers of ten of many models, minus infinity of torch.
const CONSTANTS: [f64; 10] = [
    f32::MIN as f64,
    -3.389_531_389_251_535_5e38,
    -65504.0,
    -1e4,
    -1e7,
    -1e8,
    -1e9,
    -1e10,
    -1e30,
    f64::NEG_INFINITY,
];

const BATCHES: i64 = 2;
const HEADS: i64 = CONSTANTS.len() as i64;
const QUERIES: i64 = 6;
const KEYS: i64 = 150;
const ELEMENTS: i64 = 16;

/// Keys that every row but the first of its head attends to, at least.
const VALID_MIN: i64 = 60;

/// Operands of a type, and whether scores are in double precision or products in tf32.
const TYPES: [(&str, &str, &str); 6] = [
    ("f16", "f16", "f32"),
    ("bf16", "bf16", "f32"),
    ("bf16", "f8e4m3", "f32"),
    ("f32", "f32", "tf32"),
    ("f32", "f32", "f32"),
    ("f64", "f64", "f64"),
];

/// How a constant gets into scores.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Added,
    Selected,
}

fn graph(way: Way, sinks: bool, (q, kv, math): (&str, &str, &str)) -> OperationGraph {
    let heads = [BATCHES, HEADS, QUERIES, KEYS];
    let single = if math == "f64" { "f64" } else { "f32" };
    let mut tensors = vec![
        json!({"name": "q", "dtype": q, "dims": [BATCHES, HEADS, QUERIES, ELEMENTS]}),
        json!({"name": "k", "dtype": kv, "dims": [BATCHES, HEADS / 5, KEYS, ELEMENTS]}),
        json!({"name": "v", "dtype": kv, "dims": [BATCHES, HEADS / 5, KEYS, ELEMENTS]}),
        json!({"name": "o", "dtype": q, "dims": [BATCHES, HEADS, QUERIES, ELEMENTS]}),
        json!({"name": "lse", "dtype": single, "dims": [BATCHES, HEADS, QUERIES, 1]}),
    ];
    let mut operation =
        json!({"attention": math, "q": "q", "k": "k", "v": "v", "o": "o", "lse": "lse"});
    if way == Way::Added {
        tensors.push(json!({"name": "bias", "dtype": single, "dims": heads}));
        operation["bias"] = json!("bias");
    } else {
        tensors.push(json!({"name": "valid", "dtype": "bool", "dims": heads}));
        tensors.push(json!({"name": "constant", "dtype": single, "dims": [1, HEADS, 1, 1]}));
        operation["score"] = json!({
            "captured": ["valid", "constant"],
            "operations": [{
                "pointwise": "binary_select",
                "inputs": ["score", "constant", "valid"],
                "output": "selected",
            }],
            "output": "selected",
        });
    }
    if sinks {
        tensors.push(json!({"name": "sinks", "dtype": single, "dims": [1, HEADS, 1, 1]}));
        operation["sinks"] = json!("sinks");
    }
    let text = json!({"graph": {"tensors": tensors, "operations": [operation]}}).to_string();
    OperationGraph::from_json(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Whether a query attends to a key: to none in the first row, behind left padding in the first
/// sequence, behind padding and with gaps in the other.
fn is_valid(batch: i64, query: i64, key: i64) -> bool {
    let padding = KEYS - VALID_MIN - 3 * query;
    query > 0 && if batch == 0 { key >= padding } else { key >= 40 && key % 5 != 0 }
}

/// A number of -1, 0 and 1 by turns.
fn ternary(at: usize, seed: usize) -> f64 {
    ((at * 7919 + seed) % 251 % 3) as f64 - 1.0
}

fn inputs(graph: &OperationGraph) -> Values {
    let value = |name: &str, at: usize| {
        let place = at as i64;
        let [batch, head] = [place / KEYS / QUERIES / HEADS, place / KEYS / QUERIES % HEADS];
        let valid = is_valid(batch, place / KEYS % QUERIES, place % KEYS);
        match name {
            "bias" if valid => 0.0,
            "bias" => CONSTANTS[head as usize],
            "valid" => f64::from(u8::from(valid)),
            "constant" => CONSTANTS[at],
            "sinks" => at as f64 / 4.0 - 1.0,
            "q" => ternary(at, 1),
            "k" => ternary(at, 2),
            _ => ternary(at, 3) + 0.5 * ternary(at, 77),
        }
    };
    let each = |count: i64, name: &str| (0..count as usize).map(|at| value(name, at)).collect();
    graph.inputs().map(|of| (of.uid, each(of.elements().unwrap(), &of.name))).collect()
}

/// What torch gives: scores rounded to their type, a softmax of those that are not minus infinity.
fn expected(
    way: Way,
    sinks: bool,
    dtype: DType,
    inputs: &dyn Fn(&str) -> Vec<f64>,
) -> [Vec<f64>; 2] {
    let [q, k, v] = ["q", "k", "v"].map(inputs);
    let (mut results, mut sums) = (Vec::new(), Vec::new());
    for row in 0..BATCHES * HEADS * QUERIES {
        let [batch, head, query] = [row / QUERIES / HEADS, row / QUERIES % HEADS, row % QUERIES];
        let line = |key: i64| ((batch * HEADS / 5 + head / 5) * KEYS + key) * ELEMENTS;
        let constant = CONSTANTS[head as usize];
        let score = |key: i64| {
            let at = |of: &[f64], begin: i64, column: i64| of[(begin + column) as usize];
            let term = |column| at(&q, row * ELEMENTS, column) * at(&k, line(key), column);
            let product = (0..ELEMENTS).map(term).sum::<f64>() / 4.0;
            match (is_valid(batch, query, key), way) {
                (true, _) => product,
                (false, Way::Selected) => constant,
                (false, Way::Added) => dtype.round(product + constant),
            }
        };
        let scores: Vec<f64> = (0..KEYS).map(score).collect();
        let sink = sinks.then(|| head as f64 / 4.0 - 1.0);
        let most = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
        let base = if most == f64::NEG_INFINITY { 0.0 } else { most };
        let weights: Vec<f64> = scores.iter().map(|score| (score - base).exp()).collect();
        let sum = weights.iter().sum::<f64>() + sink.map_or(0.0, |sink| (sink - base).exp());
        let result = |column: i64| {
            let term = |key: i64| weights[key as usize] * v[(line(key) + column) as usize];
            let value = (0..KEYS).map(term).sum::<f64>();
            if sum == 0.0 { 0.0 } else { value / sum }
        };
        results.extend((0..ELEMENTS).map(result));
        sums.push(base + sum.ln());
    }
    [results, sums]
}

/// The settings under which an engine runs here: its own choice, and keys split both ways.
fn configs(name: &str, graph: &OperationGraph, target: &Target) -> Vec<EngineConfig> {
    let Ok(supported) = engine::supported(name, graph.canonical(), target) else {
        return Vec::new();
    };
    let mut configs = vec![supported.heuristic()];
    if name == "attention_decode" {
        let clusters = if target.cluster_blocks_max() > 1 { vec![1, 4] } else { vec![1] };
        configs.extend(clusters.into_iter().map(|cluster| {
            let text = format!("{name}{{cluster={cluster}, cta_k=16, cta_q=32, split=4}}");
            text.parse().unwrap()
        }));
    }
    configs
}

fn check(kiln: &Kiln, config: &EngineConfig, graph: &OperationGraph, way: Way, sinks: bool) {
    let inputs = inputs(graph);
    let of = |name: &str| {
        let tensor = graph.inputs().find(|tensor| tensor.name == name).unwrap();
        inputs[&tensor.uid].clone()
    };
    let lse = graph.outputs().find(|tensor| tensor.name == "lse").unwrap();
    let expected = expected(way, sinks, lse.dtype, &of);
    let what = format!("{way:?} with {config} on {}: {graph}", kiln.device().target().name);
    let actual = harness::run(kiln, graph, Some(config), &inputs);
    let actual = actual.unwrap_or_else(|error| panic!("{what}: {error:?}"));
    for (tensor, expected) in graph.outputs().zip(&expected) {
        // Weights and results are rounded once each, to tf32 where elements are floats of 32 bits
        // on tensor cores; values are at most 1.5. Logarithms have the device's own error.
        let is_tf32 = tensor.dtype == DType::F32 && !config.engine.ends_with("simt");
        let epsilon = if is_tf32 { 2f64.powi(-11) } else { tensor.dtype.epsilon() };
        for (at, (own, exact)) in actual[&tensor.uid].iter().zip(expected).enumerate() {
            let allowed = match tensor.name.as_str() {
                "o" => 1.5 * 3.0 * epsilon.max(1e-6),
                _ => 1e-5 + 2f64.powi(-23) * exact.abs(),
            };
            let near = own == exact || (own - exact).abs() <= allowed;
            assert!(near, "{what}: {} has {own}, not {exact}, at {at}", tensor.name);
        }
    }
}

/// Whether the reference bounds what rows with keys that are not masked give, so that `--check`
/// says something of left padding.
fn check_bounds(graph: &OperationGraph) {
    let all = reference::evaluate(graph, &inputs(graph)).unwrap();
    for tensor in graph.outputs() {
        let each = (tensor.elements().unwrap() / (BATCHES * HEADS * QUERIES)) as usize;
        for (row, bounds) in all[&tensor.uid].bounds.chunks(each).enumerate() {
            let [head, query] = [row as i64 / QUERIES % HEADS, row as i64 % QUERIES];
            // Some constants are near enough to scores for their own rounding to matter.
            if query == 0 || CONSTANTS[head as usize] > -1e7 {
                continue;
            }
            let small = bounds.iter().all(|bound| *bound < 0.1);
            assert!(small, "{}: row {row} is within {bounds:?}: {graph}", tensor.name);
        }
    }
}

/// NaN is never within a bound here: [`check`] compares with numbers alone.
#[test]
fn constants_that_mask_keys() {
    let mut ran = [0; ENGINES.len()];
    for types in TYPES {
        for (way, sinks) in [(Way::Added, false), (Way::Selected, true)] {
            let graph = graph(way, sinks, types);
            check_bounds(&graph);
            for kiln in harness::dialects() {
                for (name, count) in ENGINES.iter().zip(&mut ran) {
                    for config in configs(name, &graph, kiln.device().target()) {
                        check(kiln, &config, &graph, way, sinks);
                        *count += 1;
                    }
                }
            }
        }
    }
    assert!(ran.iter().all(|ran| *ran > 0), "{ran:?} runs of {ENGINES:?}");
}
