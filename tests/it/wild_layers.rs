//! Random attentions and recurrent networks of any shape, alone and with operations behind them, as
//! problem files would have them.

use kiln::OperationGraph;
use kiln::plan::Problem;
use serde_json::{Value, json};

use crate::random_graphs::Random;

const EXTENTS: [i64; 14] = [0, 1, 1, 2, 3, 7, 16, 33, 64, 100, 257, 1024, 4096, 65_536];
const ELEMENTS: [i64; 12] = [1, 2, 8, 16, 24, 33, 64, 80, 128, 192, 256, 576];
const TYPES: [&str; 5] = ["f32", "f16", "bf16", "bf16", "f64"];

fn chance(random: &mut Random, of: usize) -> bool {
    random.below(of) == 0
}

/// Sets a key with one chance in `of`.
fn maybe(random: &mut Random, of: usize, to: &mut Value, key: &str, value: impl Into<Value>) {
    if chance(random, of) {
        to[key] = value.into();
    }
}

/// Names of this list, each as likely to be there as not to be.
fn some(random: &mut Random, of: usize, names: &[&str]) -> Vec<Value> {
    names.iter().filter(|_| random.below(of) == 0).map(|name| json!(name)).collect()
}

fn attention(random: &mut Random) -> Value {
    let kv_heads = random.pick(&[1, 1, 2, 3, 8, 64]);
    let dtype = random.pick(&TYPES);
    let mut sdpa = json!({
        "dtype": dtype,
        "batch": random.pick(&[0, 1, 1, 2, 5, 64]),
        "heads": kv_heads * random.pick(&[1, 1, 2, 5, 8, 128]),
        "kv_heads": kv_heads,
        "queries": random.pick(&EXTENTS),
        "keys": random.pick(&EXTENTS),
        "depth": random.pick(&ELEMENTS),
    });
    if dtype == "f64" {
        sdpa["math"] = json!("f64");
    }
    let width = random.pick(&ELEMENTS);
    maybe(random, 3, &mut sdpa, "width", width);
    maybe(random, 2, &mut sdpa, "right", 0);
    let left = random.pick(&[0, 1, 63, 1000]);
    maybe(random, 4, &mut sdpa, "left", left);
    maybe(random, 3, &mut sdpa, "diagonal", "bottom_right");
    maybe(random, 4, &mut sdpa, "softcap", 30.0);
    maybe(random, 6, &mut sdpa, "dropout", 0.25);
    maybe(random, 3, &mut sdpa, "layout", "bshd");
    if dtype == "f32" {
        maybe(random, 2, &mut sdpa, "math", "tf32");
    }
    let narrow = random.pick(&["f8e4m3", "f8e5m2", "f16"]);
    if matches!(dtype, "f16" | "bf16") {
        maybe(random, 4, &mut sdpa, "kv_dtype", narrow);
    }
    if chance(random, 5) {
        sdpa["page_size"] = json!(random.pick(&[1, 16, 64, 100]));
        sdpa["pages"] = json!(random.pick(&[0, 1, 7, 4096]));
    } else if chance(random, 5) {
        sdpa["query_rows"] = json!(random.pick(&EXTENTS));
        sdpa["key_rows"] = json!(random.pick(&EXTENTS));
    }
    let names = [
        "bias",
        "mask",
        "slopes",
        "sinks",
        "key_begin",
        "key_end",
        "query_lengths",
        "key_lengths",
        "lse",
    ];
    sdpa["tensors"] = json!(some(random, 4, &names));
    json!({ "sdpa": sdpa })
}

fn network(random: &mut Random) -> Value {
    let cells = [
        "relu",
        "tanh",
        "sigmoid",
        "lstm",
        "lstm",
        "gru",
        "gru_reset_before",
        "augru",
        "lbr_augru",
    ];
    let (cell, dtype) = (random.pick(&cells), random.pick(&TYPES));
    let layout = random.pick(&["sequence_major", "batch_major", "packed"]);
    let direction = random.pick(&["forward", "reverse", "both"]);
    let steps = random.pick(&[0, 1, 2, 7, 100, 1000, 65_536, 1 << 31]);
    let mut rnn = json!({
        "cell": cell,
        "input_size": random.pick(&ELEMENTS),
        "hidden_size": random.pick(&[1, 8, 16, 40, 64, 128, 256, 512, 1024, 2048]),
        "layers": random.pick(&[1, 1, 2, 3]),
        "direction": direction,
        "bias": random.pick(&["double", "none", "single_input", "single_recurrent"]),
        "dtype": dtype,
        "layout": layout,
        "batch": random.pick(&[1, 2, 3, 16, 17, 64, 256, 1024]),
        if layout == "packed" { "rows" } else { "steps" }: steps,
    });
    if direction == "both" {
        maybe(random, 3, &mut rnn, "join", "sum");
        maybe(random, 3, &mut rnn, "stacking", "separate");
    }
    if chance(random, 6) {
        rnn["input_size"] = rnn["hidden_size"].clone();
        rnn["input_mode"] = json!("skip");
    }
    if dtype == "f32" {
        maybe(random, 2, &mut rnn, "math", "tf32");
    }
    maybe(random, 5, &mut rnn, "gate_clip", 2.5);
    let mut names = some(random, 2, &["h_0", "lengths", "reset", "h_n", "reserve"]);
    if cell == "lstm" {
        maybe(random, 4, &mut rnn, "projection_size", 8);
        maybe(random, 4, &mut rnn, "peephole", true);
        names.extend(some(random, 2, &["c_0", "c_n", "history"]));
    }
    if layout == "packed" && !names.contains(&json!("lengths")) {
        names.push(json!("lengths"));
    }
    rnn["tensors"] = json!(names);
    json!({ "rnn": rnn })
}

/// One operation more on a result of the graph.
fn continued(random: &mut Random, graph: &OperationGraph) -> Option<OperationGraph> {
    let mut document: Value = serde_json::from_str(&graph.to_json()).ok()?;
    let results: Vec<_> = graph.outputs().filter(|tensor| !tensor.dims.is_empty()).collect();
    if results.is_empty() {
        return None;
    }
    let of = results[random.below(results.len())];
    let (name, rank) = (of.name.as_str(), of.dims.len());
    let mut dims = of.dims.clone();
    let mut more = Vec::new();
    let operation = match random.below(4) {
        0 if rank > 1 => {
            let mut weights = dims.clone();
            weights[rank - 2] = dims[rank - 1];
            weights[rank - 1] = random.pick(&EXTENTS);
            dims[rank - 1] = weights[rank - 1];
            more.push(json!({"name": "more_w", "dtype": of.dtype.to_string(), "dims": weights}));
            json!({"matmul": "f32", "a": name, "b": "more_w", "c": "more"})
        }
        1 => {
            dims[rank - 1] = 1;
            json!({"reduction": "max", "x": name, "y": "more"})
        }
        2 => {
            more.push(json!({"name": "more_x", "dtype": "f32", "dims": dims}));
            json!({"pointwise": "add", "inputs": [name, "more_x"], "output": "more"})
        }
        _ => json!({"pointwise": "gelu_fwd", "inputs": [name], "output": "more"}),
    };
    more.push(json!({"name": "more", "dtype": random.pick(&["f32", "bf16"]), "dims": dims}));
    document["graph"]["tensors"].as_array_mut()?.extend(more);
    document["graph"]["operations"].as_array_mut()?.push(operation);
    OperationGraph::from_json(&document.to_string()).ok()
}

/// The graph of a seed; none where what was drawn is not valid.
pub fn wild_layers(seed: u64) -> Option<OperationGraph> {
    let random = &mut Random(seed);
    let problem = if chance(random, 2) { attention(random) } else { network(random) };
    let problem = Problem::from_json(&problem.to_string()).ok()?;
    let graph = problem.only_graph().ok()?.clone();
    match chance(random, 2) {
        true => continued(random, &graph),
        false => Some(graph),
    }
}
