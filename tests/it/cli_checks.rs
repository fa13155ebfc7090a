//! `kiln run --check`: right results pass, and a check that compared nothing says so.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::cli;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("temporary folder")
}

/// A problem of pointwise operations on `f32[dims]`, each line a mode, its inputs and its output.
fn problem(folder: &tempfile::TempDir, tensors: Value, operations: Value) -> String {
    let path: PathBuf = folder.path().join("problem.json");
    let document = json!({"graph": {"tensors": tensors, "operations": operations}});
    fs::write(&path, document.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn checked(problem: &str) -> Value {
    cli::json(&cli::succeeds(&["run", problem, "--random", "1", "--check", "--json"]))
}

#[test]
fn elements_that_share_memory_are_equal() {
    let folder = folder();
    let tensors = json!([
        {"name": "x", "dims": [4, 4], "dtype": "f32", "strides": [1, 1]},
        {"name": "y", "dims": [4, 4], "dtype": "f32"},
    ]);
    let exp = json!([{"pointwise": "exp", "inputs": ["x"], "output": "y"}]);
    let problem = problem(&folder, tensors, exp);
    assert_eq!(checked(&problem)["checks"][0]["passed"], true);
    // What a file says of such elements has to agree.
    let inputs = folder.path().join("in.safetensors");
    let bytes: Vec<u8> = (0..16).flat_map(|at| (at as f32).to_le_bytes()).collect();
    let view =
        safetensors::tensor::TensorView::new(safetensors::tensor::Dtype::F32, vec![4, 4], &bytes);
    safetensors::serialize_to_file([("x", view.unwrap())], None, &inputs).unwrap();
    let inputs = inputs.to_str().unwrap();
    let text = "element 1 is 1, another at its address is 4: the strides [1, 1] share memory";
    cli::fails(2, text, &["run", &problem, "--inputs", inputs]);
}

/// Results that are far off their reference because their operands are noisy.
#[test]
fn noise_in_arguments_of_periodic_functions_is_allowed_for() {
    let folder = folder();
    for (mode, second) in [("sin", false), ("cos", false), ("tan", false), ("mod", true)] {
        let mut tensors = vec![
            json!({"name": "x", "dims": [64, 300], "dtype": "f32"}),
            json!({"name": "s", "dims": [64, 1], "dtype": "f32", "virtual": true}),
            json!({"name": "b", "dims": [64, 1], "dtype": "f32", "virtual": true}),
            json!({"name": "q", "dims": [64, 1], "dtype": "f32", "virtual": true}),
            json!({"name": "y", "dims": [64, 1], "dtype": "f32"}),
        ];
        if second {
            tensors.push(json!({"name": "scale", "dims": [1, 1], "dtype": "f32"}));
        }
        let inputs = if second { json!(["q", "scale"]) } else { json!(["q"]) };
        let operations = json!([
            {"reduction": "add", "x": "x", "y": "s"},
            {"pointwise": "mul", "inputs": ["s", "s"], "output": "b"},
            {"pointwise": "mul", "inputs": ["b", "b"], "output": "q"},
            {"pointwise": mode, "inputs": inputs, "output": "y"},
        ]);
        let problem = problem(&folder, tensors.into(), operations);
        for seed in 1..6 {
            let arguments = ["run", &problem, "--random", &seed.to_string(), "--check"];
            cli::succeeds(&arguments);
        }
    }
}

#[test]
fn random_operands_are_what_they_mean() {
    for name in ["batch_norm_training", "residual_rmsnorm_matmul"] {
        let root = env!("CARGO_MANIFEST_DIR");
        let problem = format!("{root}/examples/problems/{name}.json");
        for seed in ["1", "2", "3", "4"] {
            let arguments = ["run", &problem, "--random", seed, "--check", "--json"];
            let document = cli::json(&cli::succeeds(&arguments));
            for check in document["checks"].as_array().unwrap() {
                assert_eq!((&check["nan"], &check["unbounded"]), (&json!(0), &json!(0)), "{check}");
            }
        }
    }
    let folder = folder();
    for mode in ["log", "sqrt", "rsqrt"] {
        let tensors = json!([
            {"name": "x", "dims": [100], "dtype": "f32"},
            {"name": "y", "dims": [100], "dtype": "f32"},
        ]);
        let operation = json!([{"pointwise": mode, "inputs": ["x"], "output": "y"}]);
        let document = checked(&problem(&folder, tensors, operation));
        assert_eq!(document["checks"][0]["nan"], 0, "{mode}");
    }
}

#[test]
fn a_check_of_nothing_but_nan_says_so() {
    let folder = folder();
    let tensors = json!([
        {"name": "x", "dims": [100], "dtype": "f32"},
        {"name": "below", "dims": [100], "dtype": "f32", "virtual": true},
        {"name": "y", "dims": [100], "dtype": "f32"},
    ]);
    let operations = json!([
        {"pointwise": "sub", "inputs": ["x", "x"], "output": "below"},
        {"pointwise": "div", "inputs": ["below", "below"], "output": "y"},
    ]);
    let problem = problem(&folder, tensors, operations);
    let text = cli::succeeds(&["run", &problem, "--random", "1", "--check"]);
    let said = "y: 100 elements, nothing to compare, all of them NaN, as is the reference";
    assert!(text.contains(said), "{text}");
    assert_eq!(checked(&problem)["checks"][0]["nan"], 100);
}
