//! Attention from the command line: problem files with the keys `sdpa` and `mha`, and what they
//! cost.

use std::collections::HashMap;

use kiln::attention::{AttentionCall, AttentionRole};
use kiln::frontend::FrontEnd;
use kiln::plan::{Problem, Values};
use kiln::{DType, TensorDesc, reference};

use crate::cli::{fails, json, succeeds};
use crate::mha_vectors::{Case, TOLERANCE, cases};

fn example(name: &str) -> String {
    format!("{}/examples/problems/{name}.json", env!("CARGO_MANIFEST_DIR"))
}

fn text(name: &str) -> String {
    std::fs::read_to_string(example(name)).unwrap()
}

#[test]
fn attentions_and_layers_are_problems() {
    for name in [
        "sdpa_window_sinks",
        "attention_paged_decode",
        "attention_causal_gqa",
        "attention_documents",
        "attention_gemma2_decode",
        "attention_gpt_oss",
        "attention_mla_decode",
        "attention_mla_prefill",
        "mha_beams",
        "mha_training",
    ] {
        let run = ["run", &example(name), "--random", "1", "--check", "--sanitize", "--json"];
        let document = json(&succeeds(&run));
        let checks = document["checks"].as_array().unwrap();
        let ratio = |check: &serde_json::Value| check["worst_error_over_bound"].as_f64().unwrap();
        // What is random reaches the results: some are rounded to another neighbour.
        assert!(checks.iter().any(|check| ratio(check) > 0.0), "{name}: {document}");
    }
}

#[test]
fn a_layer_is_six_graphs_in_every_command() {
    let problem = example("mha_beams");
    let engines = succeeds(&["engines", &problem, "--settings", "1"]);
    assert!(engines.contains("part 6 of 6"), "{engines}");
    assert!(engines.contains("attention_decode{"), "{engines}");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let dumped = json(&succeeds(&["dump", &problem, "-o", &path("dumps"), "--tensors", "--json"]));
    assert_eq!(dumped["folders"].as_array().unwrap().len(), 6, "{dumped}");
    // What is tuned stays in a cache of its own: on a GPU a split may win, which plans follow.
    let cache = path("cache");
    let tune = ["tune", &problem, "--settings", "1", "--json", "--cache-dir", &cache];
    let tuned = json(&succeeds(&tune));
    assert_eq!(tuned["parts"].as_array().unwrap().len(), 6, "{tuned}");
    let manifest = path("layer.toml");
    std::fs::write(&manifest, format!("[[problem]]\nfile = \"{problem}\"\n")).unwrap();
    let warmed = json(&succeeds(&["warm", &manifest, "--json"]));
    assert_eq!(warmed["problems"], 6, "{warmed}");
    let rule = "the problem is 6 graphs, one after the other: expected one";
    fails(2, rule, &["plan", "save", &problem, "-o", &path("plan.json")]);
    let config = "pointwise{grid=0, items=1, threads=128, vector=1}";
    fails(2, rule, &["run", &problem, "--random", "1", "--config", config]);
}

/// A broken problem and what is said of it.
fn refused(name: &str, from: &str, to: &str, error: &str) {
    let text = text(name);
    assert!(text.contains(from), "{name}: {from}");
    let broken = Problem::from_json(&text.replacen(from, to, 1)).expect_err(error).to_string();
    assert!(broken.contains(error), "{to}: {broken}");
}

#[test]
fn bad_attentions_are_refused() {
    for (from, to, error) in [
        ("\"depth\"", "\"dept\"", "missing field `depth`"),
        (
            "\"sdpa\"",
            "\"sdap\"",
            "malformed problem: unknown key `sdap`, expected one of `graph`, `rnn`, `sdpa`, `mha`",
        ),
        ("\n}", ",}", "malformed problem: trailing comma at line"),
        ("\"left\"", "\"lefft\"", "key `lefft`"),
        ("\"bshd\"", "\"shbd\"", "unknown variant `shbd`, expected `bhsd` or `bshd`"),
        ("\"sinks\"", "\"sink\"", "sdpa: tensor `sink`, expected one of bias, mask, slopes"),
        ("\"kv_heads\": 2", "\"kv_heads\": 3", "8 heads of q `q` do not share 3 heads of k `k`"),
        ("\"keys\": 96", "\"keys\": -1", "-1"),
        ("\"layout\"", "\"pages\": 3, \"layout\"", "sdpa: `page_size` and `pages` go together"),
        (
            "\"layout\"",
            "\"pages\": 3, \"page_size\": 36, \"layout\"",
            "sdpa: 96 keys are no whole pages of 36 keys",
        ),
        (
            "\"layout\"",
            "\"pages\": 12, \"page_size\": 16, \"key_rows\": 9, \"layout\"",
            "sdpa: keys are either paged or concatenated, not both",
        ),
        ("\n}", ", \"scale\": {}}", "sdpa: a document has the one key `sdpa`, there is `scale`"),
        ("\n}", ", \"graph\": {}}", "the keys `graph` and `sdpa`, expected one"),
    ] {
        refused("sdpa_window_sinks", from, to, error);
    }
}

#[test]
fn bad_layers_are_refused() {
    for (from, to, error) in [
        ("\"heads\"", "\"head\"", "unknown field `head`"),
        ("\"heads\": 4", "\"heads\": 0", "the number of heads is 0, expected at least 1"),
        ("\"f16\"", "\"f17\"", "mha: unknown data type `f17`"),
        ("\"time\", \"beam\"", "\"time\", \"time\"", "lacks beam"),
        ("\"residuals\": true", "\"o_proj_size\": 7, \"residuals\": true", "outputs 7"),
        ("\"residuals\"", "\"step\": 5, \"residuals\"", "attention layer: step 5 of 5 steps"),
        ("\"residuals\"", "\"scaler\": -1, \"residuals\"", "the softmax scaler is -1"),
        ("\"residuals\"", "\"math\": \"tf32\", \"k_proj_size\": 3, \"residuals\"", "keys 3"),
        ("\"biases\"", "\"query_map\": \"all\", \"biases\"", "expected `all_to_one` or"),
    ] {
        refused("mha_beams", from, to, error);
    }
    for (from, to, error) in [
        ("\"residuals\"", "\"step\": 1, \"residuals\"", "mha: step 1 alone with gradients"),
        ("\"seed\": 1", "\"seed\": 9007199254740993", "expected at most 2^53 in magnitude"),
        ("0.1, \"seed\": 2", "1, \"seed\": 2", "dropout descriptor: probability 1, expected 0"),
        ("\"queries\"", "\"beams\": 2, \"queries\"", "2 beam candidates in training"),
    ] {
        refused("mha_training", from, to, error);
    }
}

/// Operands of every kind by their names, pages and ragged sequences: all give what the reference
/// gives.
#[test]
fn every_operand_of_an_attention_can_be_named() {
    let base = r#""dtype": "f32", "heads": 4, "kv_heads": 2, "queries": 9, "depth": 8"#;
    let same = r#"{"name": "own", "dtype": "f32", "dims": [2, 1, 9, 1]}"#;
    let score = r#""score": {"captured": ["own"], "output": "scaled", "operations": [
        {"pointwise": "mul", "inputs": ["score", "own"], "output": "scaled"}]}"#;
    let captures = format!(r#""keys": 12, "tensors": [{same}], {score}"#);
    for (batch, more) in [
        (2, r#""keys": 12, "width": 6, "tensors": ["bias", "mask", "lse"]"#),
        (2, r#""keys": 5, "tensors": ["key_begin", "key_end", "query_lengths"]"#),
        (2, r#""keys": 12, "pages": 7, "page_size": 4, "dropout": 0.25"#),
        (3, r#""keys": 9, "query_rows": 20, "key_rows": 20, "layout": "bshd""#),
        (2, r#""keys": 8, "kv_dtype": "f8e4m3", "tensors": ["descale_k", "descale_v"]"#),
        (2, &captures),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sdpa.json");
        std::fs::write(&path, format!(r#"{{"sdpa": {{"batch": {batch}, {base}, {more}}}}}"#))
            .unwrap();
        succeeds(&["run", path.to_str().unwrap(), "--random", "1", "--check", "--sanitize"]);
    }
}

/// Layers of more than a tile, in training.
#[test]
fn layers_in_training_give_what_the_reference_gives() {
    for more in [
        r#""heads": 3, "q_size": 24, "k_size": 17, "q_proj_size": 40, "k_proj_size": 40,
           "v_proj_size": 33, "o_proj_size": 24, "biases": true, "dtype": "f16", "batch": 3,
           "queries": 37, "keys": 70, "layout": ["time", "beam", "batch"], "residuals": true,
           "attn_dropout": { "probability": 0.3, "seed": 5 }"#,
        r#""heads": 2, "q_size": 20, "k_size": 32, "v_size": 24, "q_proj_size": 32,
           "k_proj_size": 0, "v_proj_size": 0, "o_proj_size": 12, "dtype": "f32",
           "math": "tf32", "batch": 2, "queries": 70, "keys": 37,
           "layout": ["beam", "batch", "time"], "post_dropout": { "probability": 0.5 }"#,
        r#""heads": 4, "q_size": 64, "o_proj_size": 0, "biases": true, "dtype": "bf16",
           "batch": 2, "queries": 65, "keys": 129, "layout": ["batch", "time", "beam"],
           "residuals": true, "attn_dropout": { "probability": 0.1, "seed": -1 },
           "post_dropout": { "probability": 0.1, "seed": -1 }"#,
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mha.json");
        std::fs::write(&path, format!(r#"{{"mha": {{{more}, "backward": true}}}}"#)).unwrap();
        succeeds(&["run", path.to_str().unwrap(), "--random", "1", "--check", "--sanitize"]);
    }
}

/// A case as a document.
fn document(case: &Case) -> String {
    let Case { heads, sizes, projections, order, .. } = case;
    let [q_size, k_size, v_size] = sizes;
    let [q_proj, k_proj, v_proj, o_proj] = projections;
    let mut mha = serde_json::json!({
        "heads": heads, "q_size": q_size, "k_size": k_size, "v_size": v_size,
        "q_proj_size": q_proj, "k_proj_size": k_proj, "v_proj_size": v_proj,
        "o_proj_size": o_proj, "biases": case.biases, "scaler": case.scaler, "dtype": "f64",
        "query_map": case.query_map, "batch": 2, "beams": case.beams, "queries": 3, "keys": 4,
        "layout": order, "residuals": case.residuals,
    });
    if case.step >= 0 {
        mha["step"] = case.step.into();
    }
    serde_json::json!({"mha": mha}).to_string()
}

#[test]
fn layers_in_files_are_the_oracles() {
    for case in cases() {
        let problem = Problem::from_json(&document(&case)).unwrap();
        let call = AttentionCall::from_json(&document(&case)).unwrap();
        let memory = case.memory(&call.layer);
        let named = |tensor: &TensorDesc| {
            let of = |role: &AttentionRole| role.name() == tensor.name;
            let values = match AttentionRole::ALL.iter().find(|role| of(role)) {
                Some(role) => memory[role].clone(),
                None => {
                    let weights = &memory[&AttentionRole::Weights];
                    let slice = &case.weights[&tensor.name];
                    assert_eq!(tensor.dims, slice.dims);
                    let strides = slice.strides.to_vec();
                    let places = TensorDesc { strides, ..tensor.clone() };
                    let first = slice.offset as usize;
                    places.offsets().map(|at| weights[first + at]).collect()
                }
            };
            (tensor.uid, values)
        };
        let named: HashMap<i64, Vec<f64>> = call.named_inputs().iter().map(named).collect();
        let mut values = call.initial_values(named).unwrap();
        values.insert(AttentionRole::Output as i64, memory[&AttentionRole::Output].clone());
        for (number, graph) in problem.graphs().into_iter().enumerate() {
            let inputs = problem.inputs(number, &values);
            let given = reference::evaluate(graph, &inputs).unwrap().into_iter();
            let given: Values = given.map(|(uid, expected)| (uid, expected.values)).collect();
            problem.store(number, &given, &mut values);
        }
        let error = call.initial_values(HashMap::new()).unwrap_err().to_string();
        assert!(error.starts_with("attention layer: 0 values of `queries`, expected "), "{error}");
        let outputs = call.named_outputs();
        assert_eq!(outputs[0].dtype, DType::F64);
        case.check(&call.named_values(&values)[&outputs[0].uid], TOLERANCE, "file");
    }
}

#[test]
fn bench_times_attention() {
    let small = ["bench", "attention", "--queries", "16", "--samples", "2"];
    let document = json(&succeeds(&[&small[..], &["--causal", "--json"]].concat()));
    assert!(document["build_ms"].as_f64().unwrap() > 0.0, "{document}");
    assert!(document["pass_us"].as_f64().unwrap() > 0.0, "{document}");
    assert!(document["parts"][0].as_str().unwrap().starts_with("attention_"), "{document}");
    fails(2, "--samples is 0", &["bench", "attention", "--samples", "0"]);
    fails(2, "8 heads of q", &["bench", "attention", "--kv-heads", "3"]);
    let help = succeeds(&["bench", "attention", "--help"]);
    assert!(help.contains("Examples:"), "{help}");
}
