//! How long NVRTC takes for the kernels of attention: every engine at its default setting, types,
//! heads of 64, 128 and 256 elements, from nothing but the product to all features at once.
//!
//! `cargo bench --bench attention`. Target: 500 ms each.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, SamplingMode};
use kiln::attention::sdpa_from_json;
use kiln::device::DeviceChoice;
use kiln::target::Target;
use kiln::{Config, Kiln, OperationGraph, engine};
use serde_json::{Value, json};

/// Engine, type of queries and results, type of keys and values, arithmetic of products.
const KERNELS: [[&str; 4]; 9] = [
    ["attention_wgmma", "bf16", "bf16", "f32"],
    ["attention_mma", "bf16", "bf16", "f32"],
    ["attention_mma", "bf16", "f8e4m3", "f32"],
    ["attention_mma", "f32", "f32", "tf32"],
    ["attention_decode", "bf16", "bf16", "f32"],
    ["attention_decode", "bf16", "f8e4m3", "f32"],
    ["attention_decode", "f32", "f32", "tf32"],
    ["attention_simt", "f32", "f32", "f32"],
    ["attention_simt", "f64", "f64", "f64"],
];

/// Nothing but the products, a causal mask, what language models ask for, the same with dropout,
/// all there is.
fn features(queries: i64) -> [(&'static str, Value); 5] {
    let tensors = |all: &[&[&'static str]]| json!(all.concat());
    let captured = |name, dims: [i64; 4]| json!({"name": name, "dtype": "f32", "dims": dims});
    let causal = json!({"diagonal": "bottom_right", "right": 0, "tensors": ["lse"]});
    let model: &[&str] = &["slopes", "sinks", "key_lengths"];
    let mut of_model = causal.clone();
    of_model["left"] = json!(1024);
    of_model["softcap"] = json!(30);
    of_model["tensors"] = tensors(&[&["lse"], model]);
    let mut dropped = of_model.clone();
    dropped["dropout"] = json!(0.1);
    let mut all = dropped.clone();
    let more: &[&str] = &["key_begin", "key_end", "bias", "mask", "query_lengths"];
    all["tensors"] = tensors(&[&["lse"], model, more]);
    let own =
        [("table", [1, 32, 1, 1]), ("of_query", [1, 1, queries, 1]), ("of_key", [1, 1, 1, 2048])];
    let own = own.map(|(name, dims)| captured(name, dims));
    all["tensors"].as_array_mut().expect("a list").extend(own);
    all["score"] = json!({
        "captured": ["table"],
        "operations": [
            {"pointwise": "sub", "inputs": ["key", "query"], "output": "distance"},
            {"pointwise": "sin", "inputs": ["distance"], "output": "wave"},
            {"pointwise": "mul", "inputs": ["wave", "table"], "output": "term"},
            {"pointwise": "add", "inputs": ["score", "term"], "output": "sum"},
        ],
        "output": "sum",
    });
    all["keep"] = json!({
        "captured": ["of_query", "of_key"],
        "operations": [
            {"pointwise": "cmp_eq", "inputs": ["of_query", "of_key"], "output": "same"},
        ],
        "output": "same",
    });
    [
        ("plain", json!({})),
        ("causal", causal),
        ("model", of_model),
        ("dropout", dropped),
        ("all", all),
    ]
}

/// Heads of a language model.
fn graph(
    [_, dtype, kv_dtype, math]: [&str; 4],
    [queries, depth]: [i64; 2],
    features: Value,
) -> OperationGraph {
    let mut sdpa = json!({
        "dtype": dtype, "kv_dtype": kv_dtype, "math": math, "batch": 2, "heads": 32, "kv_heads": 8,
        "queries": queries, "keys": 2048, "depth": depth,
    });
    let attributes = features.as_object().expect("attributes").clone();
    sdpa.as_object_mut().expect("extents").extend(attributes);
    let text = json!({ "sdpa": sdpa }).to_string();
    sdpa_from_json(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn main() {
    let target = Target::named("h200").expect("known");
    let kiln = Kiln::open(Config {
        device: Some(DeviceChoice::Null("h200".to_owned())),
        no_disk_cache: true,
        ..Config::default()
    });
    let kiln = kiln.expect("the null device opens");
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("compile");
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    group.warm_up_time(Duration::from_millis(1)).measurement_time(Duration::from_millis(1));
    for kernel @ [name, _, kv_dtype, _] in KERNELS {
        // Few for the engine that is made for them.
        let queries = if name == "attention_decode" { 4 } else { 2048 };
        for depth in [64, 128, 256] {
            for (what, features) in features(queries) {
                let graph = graph(kernel, [queries, depth], features);
                let supported = engine::supported(name, graph.canonical(), &target);
                let config = supported.expect("the engine takes it").heuristic();
                let sources = kiln.sources(&graph, &config).expect("the setting is legal");
                kiln.compile(&sources[0]).expect("it compiles");
                group.bench_function(format!("{name}/{kv_dtype}/{depth}/{what}"), |b| {
                    b.iter(|| kiln.compile(black_box(&sources[0])))
                });
            }
        }
    }
    group.finish();
    criterion.final_summary();
}
