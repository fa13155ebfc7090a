//! The command line tool, run as a user runs it.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Output};

use kiln::DType;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::harness;

pub const PROBLEM: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/examples/problems/swish_backward.json");

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.args(arguments).envs(harness::environment());
    command
}

pub fn kiln(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the tool starts")
}

#[track_caller]
pub fn succeeds(arguments: &[&str]) -> String {
    let output = kiln(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8(output.stdout).unwrap();
    // A check that fails says in the output what is wrong.
    assert!(output.status.success(), "{arguments:?}: {}\n{text}{errors}", output.status);
    text
}

#[track_caller]
pub fn fails(code: i32, text: &str, arguments: &[&str]) {
    let output = kiln(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{errors}");
    assert!(errors.contains(text), "{arguments:?}: {errors}");
}

pub fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn demo_checks_its_results() {
    let text = succeeds(&["demo", "--attention"]);
    assert!(text.contains("every result is within the reference's bound"), "{text}");
    let text = succeeds(&["demo"]);
    assert!(text.contains("every result is within the reference's bound"), "{text}");
    assert!(text.contains("hidden: f32[64, 768] = gelu_fwd(biased)"), "{text}");
    let document = json(&succeeds(&["demo", "--json"]));
    assert_eq!(document["passed"], true);
    for row in document["rows"].as_array().unwrap() {
        assert_eq!(row["origin"], "disk hit", "the second run finds the kernels: {row}");
    }
}

#[test]
fn demo_runs_networks() {
    let text = succeeds(&["demo", "--rnn"]);
    assert!(text.contains("every result is within the reference's bound"), "{text}");
    let document = json(&succeeds(&["demo", "--rnn", "--json"]));
    assert_eq!(document["passed"], true);
    assert!(document["rows"].as_array().unwrap().len() > 5, "{document}");
}

#[test]
fn networks_are_problems_with_torchs_names() {
    let root = env!("CARGO_MANIFEST_DIR");
    let file = |name: &str| format!("{root}/examples/{name}");
    let (problem, inputs) = (file("torch_lstm/problem.json"), file("torch_lstm/lstm.safetensors"));
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let outputs = path("out.safetensors");
    succeeds(&["run", &problem, "--inputs", &inputs, "--outputs", &outputs, "--check"]);
    let bytes = [std::fs::read(&inputs).unwrap(), std::fs::read(&outputs).unwrap()];
    let [torch, own] = bytes.each_ref().map(|bytes| SafeTensors::deserialize(bytes).unwrap());
    for name in ["output", "h_n", "c_n"] {
        let [torch, own] = [&torch, &own].map(|file| file.tensor(name).unwrap());
        assert_eq!(torch.shape(), own.shape(), "{name}");
        let pairs = torch.data().chunks_exact(4).zip(own.data().chunks_exact(4));
        let off = pairs.map(|(a, b)| (DType::F32.read(a) - DType::F32.read(b)).abs());
        // Both round in f32 at every of 20 steps; states stay below 4.
        assert!(off.fold(0.0, f64::max) < 1e-5, "{name}");
    }
    let plan = path("plan.json");
    succeeds(&["plan", "save", &problem, "-o", &plan]);
    succeeds(&["run", &plan, "--random", "1", "--check"]);
    let engines = succeeds(&["engines", &problem]);
    assert!(engines.contains("rnn_cta{"), "{engines}");
    succeeds(&["dump", &problem, "-o", &path("dumps")]);
    let text = std::fs::read_to_string(&problem).unwrap();
    for (from, to, error) in [
        ("\"lstm\"", "\"lsdm\"", "key `cell` is `lsdm`, expected one of relu, tanh,"),
        ("\"h_0\"", "\"h_1\"", "tensor `h_1`, expected one of h_0, c_0, lengths, reset,"),
        ("\"steps\": 10", "\"rows\": 10", "that is not packed has the key `steps`, and no `rows`"),
        ("\"both\"", "\"back\"", "key `direction` is `back`, expected one of forward, reverse"),
        ("\"layers\": 2", "\"layer\": 2", "unknown field `layer`"),
        ("\"layers\": 2", "\"layers\": 0", "the number of layers is 0, expected at least 1"),
    ] {
        let broken = path("broken.json");
        assert!(text.contains(from), "{from}");
        std::fs::write(&broken, text.replacen(from, to, 1)).unwrap();
        fails(2, error, &["run", &broken, "--random", "1"]);
    }
}

#[test]
fn bench_times_a_network() {
    let arguments = ["bench", "rnn", "--hidden", "16", "--steps", "3", "--samples", "2", "--json"];
    let document = json(&succeeds(&arguments));
    assert!(document["build_ms"].as_f64().unwrap() > 0.0, "{document}");
    assert!(document["pass_us"].as_f64().unwrap() > 0.0, "{document}");
    let trained = [&arguments[..], &["--layers", "2", "--training", "--dropout", "0.5"]].concat();
    let document = json(&succeeds(&trained));
    let alone = document["alone"].as_object().unwrap();
    assert!(alone.len() == 3 && alone.values().all(|us| us.as_f64().unwrap() > 0.0), "{document}");
    let kernels = document["kernels"].as_array().unwrap();
    assert!(kernels.iter().any(|of| of.as_str().unwrap().contains("_backward_")), "{document}");
    fails(2, "--samples is 0", &["bench", "rnn", "--samples", "0"]);
    fails(
        2,
        "probability 1, expected 0 to less than 1",
        &[&trained[..9], &["--training", "--dropout", "1"]].concat(),
    );
    fails(2, "--training", &["bench", "rnn", "--dropout", "0.5"]);
    fails(2, "the input size is 0", &["bench", "rnn", "--hidden", "0"]);
}

#[test]
fn bench_times_a_graph() {
    let problem =
        |name: &str| format!("{}/examples/problems/{name}.json", env!("CARGO_MANIFEST_DIR"));
    for name in ["swiglu", "batch_norm_training"] {
        let document =
            json(&succeeds(&["bench", "graph", &problem(name), "--samples", "2", "--json"]));
        assert!(document["pass_us"].as_f64().unwrap() > 0.0, "{document}");
        let products = document["teraflops"].as_f64().unwrap() > 0.0;
        assert_eq!(products, name == "swiglu", "{document}");
    }
    let text = succeeds(&["bench", "graph", &problem("softmax"), "--samples", "2"]);
    assert!(text.contains("GB/s, each tensor moved once") && !text.contains("TFLOP"), "{text}");
    fails(2, "the problem is 6 graphs", &["bench", "graph", &problem("mha_beams")]);
}

#[test]
fn run_reads_and_writes_tensors() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (inputs, outputs) = (path("in.safetensors"), path("out.safetensors"));
    let halves = |from: f64| -> Vec<u8> {
        let values = (0..8 * 1024).map(|at| from + at as f64 / 4096.0);
        let mut bytes = vec![0; 8 * 1024 * 2];
        for (value, element) in values.zip(bytes.chunks_exact_mut(2)) {
            DType::F16.write(value, element);
        }
        bytes
    };
    let (x, dy, scale) = (halves(-1.0), halves(0.5), 2.0f32.to_le_bytes());
    let view = |dtype, shape: &[usize], bytes| {
        TensorView::new(dtype, shape.to_vec(), bytes).expect("bytes fit the shape")
    };
    let tensors = HashMap::from([
        ("x", view(Dtype::F16, &[8, 1024], &x)),
        ("dy", view(Dtype::F16, &[8, 1024], &dy)),
        ("loss_scale", view(Dtype::F32, &[1, 1], &scale)),
    ]);
    safetensors::serialize_to_file(tensors, None, Path::new(&inputs)).unwrap();
    let run = ["run", PROBLEM, "--inputs", &inputs, "--outputs", &outputs, "--check", "--json"];
    let report = json(&succeeds(&run));
    assert_eq!(report["checks"][0]["passed"], true);
    assert_eq!(report["kernels"][0]["spill_bytes"], 0);
    let bytes = std::fs::read(&outputs).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let dx = file.tensor("dx").unwrap();
    assert_eq!((dx.dtype(), dx.shape()), (Dtype::F32, &[8, 1024][..]));
    // Element 4096: x = 0, dy = 1.5; swish'(0) = 1/2; times the loss scale.
    assert_eq!(DType::F32.read(&dx.data()[4096 * 4..]), 1.5);
}

#[test]
fn run_checks_and_counts_on_the_simulator() {
    let run = ["run", PROBLEM, "--random", "1", "--device", "sim", "--sanitize", "--counters"];
    let text = succeeds(&run);
    // One 16-byte load per 8 halves of x and dy, two 16-byte stores per 8 floats of dx.
    let chunks = 8 * 1024 / 8 / 32;
    let row = |name: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(name));
        let count = line.and_then(|line| line.split_whitespace().nth(2));
        count.and_then(|count| count.parse::<u64>().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    assert_eq!((row("load global"), row("store global")), (2 * chunks, 2 * chunks));
    assert!(text.contains("/kiln/sm75_pointwise_f32_flat.cu:"), "no working folder in it: {text}");
    // Halves of x and dy read, floats of dx written, and the loss scale passed by value.
    let least = 8 * 1024 * (2 + 2 + 4);
    let moved = format!("{} bytes read, {} written, 1.00 times the least", least / 2, least / 2);
    assert!(text.contains(&moved), "{text}");
    assert!(text.contains("H100: ") && text.contains("% of the SMs"), "{text}");
    let h200 = ["run", PROBLEM, "--random", "1", "--device", "sim:h200", "--counters", "--json"];
    let report = json(&succeeds(&h200));
    let estimate = &report["kernels"][0]["estimate"];
    assert_eq!(estimate["machine"], "H200");
    // Eight blocks do not fill a machine: what binds is the few SMs that have one.
    assert_eq!(estimate["parts"][0]["part"], "issue slots");
    let mut parts = estimate["parts"].as_array().unwrap().iter();
    let memory = parts.find(|part| part["part"] == "device memory").unwrap();
    let us = memory["us"].as_f64().unwrap();
    assert!((us - f64::from(least) / 4.8e6).abs() < 1e-9, "{us}");
}

#[test]
fn a_variable_that_is_no_text_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let wrong = std::ffi::OsStr::from_bytes(b"\xff");
    for name in ["KILN_TRUST_ROOTS", "KILN_NO_JIT", "KILN_DEVICE", "KILN_CACHE_BYTES"] {
        let output = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["run", PROBLEM, "--random", "1"])
            .env(name, wrong)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert_eq!(text, format!("kiln: environment {name}: the value is not UTF-8\n"));
    }
}

#[test]
fn run_reports_bad_input_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let broken = path("broken.safetensors");
    std::fs::write(&broken, b"\xff\xff\xff\xff").unwrap();
    let run =
        |inputs: &str| vec!["run".to_owned(), PROBLEM.into(), "--inputs".into(), inputs.into()];
    let check = |code, text: &str, arguments: Vec<String>| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        fails(code, text, &arguments);
    };
    check(2, &format!("kiln: malformed safetensors file `{broken}`: "), run(&broken));
    let missing = path("missing.safetensors");
    check(
        2,
        &format!("kiln: failed to read tensors from `{missing}`: No such file"),
        run(&missing),
    );
    let wrong = path("wrong.safetensors");
    let bytes = [0; 64];
    let view = TensorView::new(Dtype::F32, vec![16], &bytes).unwrap();
    safetensors::serialize_to_file([("x", view)], None, Path::new(&wrong)).unwrap();
    check(
        2,
        &format!("kiln: `{wrong}`: tensor `x` is F32[16], the problem says f16[8, 1024]"),
        run(&wrong),
    );
    let view = TensorView::new(Dtype::F32, vec![16], &bytes).unwrap();
    safetensors::serialize_to_file([("z", view)], None, Path::new(&wrong)).unwrap();
    check(2, &format!("kiln: `{wrong}` holds no tensor `x`"), run(&wrong));
    let problem = path("problem.json");
    std::fs::write(&problem, "{\"graph\": 3}").unwrap();
    fails(
        2,
        &format!("kiln: `{problem}`: malformed problem: invalid type: integer `3`"),
        &["run", &problem, "--random", "1"],
    );
    fails(
        4,
        "NVRTC not found",
        &["run", PROBLEM, "--random", "1", "--nvrtc", "/nowhere", "--cache-dir", "off"],
    );
    fails(2, "unknown device `gpu`", &["run", PROBLEM, "--random", "1", "--device", "gpu"]);
}

#[test]
fn engines_explain_themselves() {
    let text = succeeds(&["engines", PROBLEM, "--source"]);
    assert!(text.contains("vector   [1,2,4,8]"), "{text}");
    assert!(text.contains("    vector=8: the widest access that layouts and"), "{text}");
    assert!(text.contains("op::swish_bwd(x, scaled, 1.5f)"), "{text}");
    let document = json(&succeeds(&["engines", PROBLEM, "--json", "--device", "sim:h200"]));
    assert_eq!(document["parts"][0]["engines"][0]["supported"], true);
    assert_eq!(document["device"], "NVIDIA H200 (sm_90a, 132 SMs)");
    let folder = tempfile::tempdir().unwrap();
    let problem = folder.path().join("problem.json");
    let tensor = |name: &str| serde_json::json!({"name": name, "dtype": "f32", "dims": [4, 4]});
    let matmul = |a: &str, c: &str| serde_json::json!({"matmul": "f32", "a": a, "b": "b", "c": c});
    let tensors = ["a", "b", "y", "z"].map(tensor);
    let graph = serde_json::json!({"graph": {
        "tensors": tensors,
        "operations": [matmul("a", "y"), matmul("y", "z")],
    }});
    std::fs::write(&problem, graph.to_string()).unwrap();
    let text = succeeds(&["engines", problem.to_str().unwrap()]);
    assert!(text.contains("part 2 of 2"), "{text}");
    assert!(text.contains("parts 1 and 2: pointwise: matmul is not pointwise"), "{text}");
}

#[test]
fn doctor_finds_what_the_tests_found() {
    let text = succeeds(&["doctor"]);
    assert!(text.lines().next().unwrap().contains("KILN_CACHE_DIR"), "{text}");
    assert!(text.contains("compiled and ran a kernel, the result is right"), "{text}");
    let output = kiln(&["doctor", "--json", "--nvrtc", "/nowhere"]);
    assert_eq!(output.status.code(), Some(1));
    let document = json(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(document["healthy"], false);
    let findings = document["findings"].as_array().unwrap();
    let nvrtc = findings.iter().find(|finding| finding["name"] == "nvrtc").unwrap();
    assert!(nvrtc["fix"].as_str().unwrap().starts_with("run `make setup`"), "{nvrtc}");
}

#[test]
fn sixteen_cold_processes_compile_one_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let start = || {
        Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["run", PROBLEM, "--random", "1", "--json"])
            .env("KILN_CACHE_DIR", &cache)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("the tool starts")
    };
    let children: Vec<_> = (0..16).map(|_| start()).collect();
    let origins: Vec<String> = children
        .into_iter()
        .map(|child| json(&String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()))
        .map(|report| report["kernels"][0]["origin"].as_str().unwrap().to_owned())
        .collect();
    let compiled = origins.iter().filter(|origin| *origin == "compiled").count();
    assert_eq!(compiled, 1, "{origins:?}");
    let stats = ["cache", "stats", "--json", "--cache-dir", cache.to_str().unwrap()];
    let stats = json(&succeeds(&stats));
    assert_eq!(
        (&stats["entries"], &stats["hits"], &stats["writes"]),
        (&1.into(), &15.into(), &1.into())
    );
}

#[test]
fn cache_looks_after_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let cache = cache.to_str().unwrap();
    fn with<'a>(cache: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
        [arguments, &["--cache-dir", cache]].concat()
    }
    let config = |threads: u32| format!("pointwise{{grid=0,items=1,threads={threads},vector=8}}");
    for threads in [128, 256] {
        succeeds(&with(cache, &["run", PROBLEM, "--random", "1", "--config", &config(threads)]));
    }
    let listed = json(&succeeds(&with(cache, &["cache", "ls", "--json"])));
    let entries = listed["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 2);
    assert!(entries[0]["kernel"].as_str().unwrap().starts_with("sm75_pointwise_f32_flat for sm_"));
    let key = entries[0]["key"].as_str().unwrap().to_owned();
    let text = succeeds(&with(cache, &["cache", "explain", &key[..12]]));
    assert!(text.contains("wanted  //   threads = "), "{text}");
    fails(
        2,
        "no entry has a key that starts with `xyz`",
        &with(cache, &["cache", "explain", "xyz"]),
    );
    assert!(succeeds(&with(cache, &["cache", "verify"])).ends_with(": all sound\n"));
    let path = Path::new(cache).join("kernels").join(&key[..2]).join(format!("{key}.kiln"));
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let output = kiln(&with(cache, &["cache", "verify"]));
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("{key}.kiln: digest differs")), "{text}");
    assert!(succeeds(&with(cache, &["cache", "clear"])).starts_with("removed  2 entries"));
    assert!(
        succeeds(&with(cache, &["cache", "gc", "--budget", "1M"]))
            .starts_with("removed  0 entries")
    );
    let typo = folder.path().join("typo");
    let shown = typo.to_str().unwrap();
    for command in [&["cache", "stats"][..], &["cache", "ls"], &["cache", "clear"]] {
        let text = format!("kiln: cache folder `{shown}` does not exist");
        fails(2, &text, &with(shown, command));
        assert!(!typo.exists(), "looking creates nothing");
    }
    fails(2, "expected like 500M", &with(cache, &["cache", "gc", "--budget", "much"]));
}

#[test]
fn warm_fills_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (manifest, cache) = (path("manifest.toml"), path("cache"));
    let text = format!("targets = [\"sim\", \"a100\"]\n[[problem]]\nfile = {PROBLEM:?}\n");
    std::fs::write(&manifest, text).unwrap();
    let warm = ["warm", &manifest, "--cache-dir", &cache, "--json"];
    let report = json(&succeeds(&warm));
    assert_eq!((&report["problems"], &report["compiled"]), (&2.into(), &2.into()));
    let report = json(&succeeds(&warm));
    assert_eq!((&report["compiled"], &report["found"]), (&0.into(), &2.into()));
    let run = ["run", PROBLEM, "--random", "1", "--json", "--device", "sim", "--cache-dir", &cache];
    assert_eq!(json(&succeeds(&run))["kernels"][0]["origin"], "disk hit");
    fails(2, "unknown target `sm_42`", &["warm", &manifest, "--target", "sm_42"]);
    fails(2, "kiln: failed to read manifest `/nowhere`", &["warm", "/nowhere"]);
}

#[test]
fn packs_ship_a_deployment() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (manifest, pack) = (path("manifest.toml"), path("a.kilnpack"));
    std::fs::write(&manifest, format!("[[problem]]\nfile = {PROBLEM:?}\n")).unwrap();
    let text = succeeds(&["pack", "build", &manifest, "--target", "sim", "-o", &pack]);
    assert!(text.starts_with("1 kernels for sm_90a in "), "{text}");
    assert!(succeeds(&["pack", "ls", &pack]).contains(" canary  "));
    assert!(succeeds(&["pack", "verify", &pack]).starts_with("1 kernels sound, 1 canaries right"));
    let covers = |target: &str| kiln(&["pack", "covers", &manifest, &pack, "--target", target]);
    assert_eq!(covers("sim").status.code(), Some(0));
    assert_eq!(covers("a100").status.code(), Some(1));
    assert_eq!(kiln(&["pack", "diff", &pack, &pack]).status.code(), Some(0));
    let run = |problem: &str, nvrtc: &str| {
        Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["run", problem, "--random", "1", "--json", "--device", "sim"])
            .args(["--nvrtc", nvrtc, "--cache-dir", "off"])
            .envs([("KILN_PACKS", pack.as_str()), ("KILN_NO_JIT", "1")])
            .output()
            .expect("the tool starts")
    };
    let output = run(PROBLEM, "/nowhere");
    assert_eq!(
        json(&String::from_utf8(output.stdout).unwrap())["kernels"][0]["origin"],
        "pack hit"
    );
    let other = PROBLEM.replace("swish_backward", "causal_mask");
    let output = run(&other, "/nowhere");
    assert_eq!(output.status.code(), Some(3));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.starts_with("kiln: no-JIT mode: kernel sm75_pointwise_"), "{errors}");
    // Signed packs: only those of a trusted key are opened where a root is configured.
    let (key, other) = (path("key"), path("other"));
    let root = succeeds(&["pack", "keygen", "-o", &key]).trim_end().to_owned();
    let stranger = succeeds(&["pack", "keygen", "-o", &other]).trim_end().to_owned();
    fails(5, "failed to write key", &["pack", "keygen", "-o", &key]);
    let trusting = |roots: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["run", PROBLEM, "--random", "1", "--device", "sim", "--cache-dir", "off"])
            .envs([("KILN_PACKS", pack.as_str()), ("KILN_TRUST_ROOTS", roots)])
            .output()
            .expect("the tool starts");
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, errors) = trusting(&root);
    assert_eq!((code, errors), (Some(2), format!("kiln: pack `{pack}`: it is not signed\n")));
    succeeds(&["pack", "sign", &pack, "--key", &key]);
    assert!(succeeds(&["pack", "ls", &pack]).contains(&format!("signed by {root}")));
    assert_eq!(trusting(&format!("{stranger}:{root}")).0, Some(0));
    let (code, errors) = trusting(&stranger);
    assert!(code == Some(2) && errors.contains("which is not a trust root"), "{errors}");
    assert!(trusting("xyz").1.contains("environment KILN_TRUST_ROOTS: a public key is 64"));
    fails(
        2,
        "expected I/N with I < N",
        &["pack", "build", &manifest, "--target", "sim", "-o", &pack, "--shard", "4/4"],
    );
}

#[test]
fn the_environment_stands_in_for_options() {
    let folder = tempfile::tempdir().unwrap();
    let run = |variable: &str, value: &str, arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["run", PROBLEM, "--random", "1", "--json"])
            .args(arguments)
            .envs(harness::environment())
            .env(variable, value)
            .output()
            .expect("the tool starts")
    };
    let device = |output: Output| {
        json(&String::from_utf8(output.stdout).unwrap())["device"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        device(run("KILN_DEVICE", "sim:a100", &[])),
        "NVIDIA A100-SXM4-80GB (sm_80, 108 SMs)"
    );
    let option_wins = run("KILN_DEVICE", "sim:a100", &["--device", "sim:t4"]);
    assert_eq!(device(option_wins), "Tesla T4 (sm_75, 40 SMs)");
    let errors = |output: Output| String::from_utf8(output.stderr).unwrap();
    assert!(
        errors(run("KILN_DEVICE", "gpu", &[]))
            .starts_with("kiln: environment KILN_DEVICE: unknown device `gpu`: expected auto"),
    );
    let cache = folder.path().join("cache");
    run("KILN_CACHE_DIR", cache.to_str().unwrap(), &[]);
    assert!(cache.join("kernels").is_dir());
    let templates = concat!(env!("CARGO_MANIFEST_DIR"), "/templates");
    assert!(run("KILN_TEMPLATES", templates, &[]).status.success());
    let missing = errors(run("KILN_TEMPLATES", "/nowhere", &[]));
    assert!(missing.starts_with("kiln: failed to read templates from `/nowhere`\n  caused by: "));
    let missing = errors(run("KILN_NVRTC", "/nowhere", &["--cache-dir", "off"]));
    assert!(missing.ends_with("searched:\n  /nowhere (KILN_NVRTC)\n"), "{missing}");
}

#[test]
fn every_command_has_help_with_examples() {
    for command in [
        "demo",
        "run",
        "engines",
        "bench",
        "tune",
        "plan",
        "cache",
        "warm",
        "pack",
        "dump",
        "replay",
        "doctor",
        "exec",
        "completions",
    ] {
        let text = succeeds(&[command, "--help"]);
        assert!(text.contains("Examples:\n  kiln "), "{text}");
    }
    assert!(succeeds(&["--help"]).contains("Exit codes:"));
}

#[test]
fn plans_are_saved_and_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.json");
    let plan = plan.to_str().unwrap();
    let text = succeeds(&["plan", "save", PROBLEM, "-o", plan]);
    assert!(text.contains("1 parts, 1 kernels"), "{text}");
    let loaded = json(&succeeds(&["plan", "load", plan, "--json"]));
    assert_eq!(loaded["kernels"][0]["kernel"], "sm75_pointwise_f32_flat");
    let text = succeeds(&["run", plan, "--random", "1", "--check"]);
    assert!(text.contains("check   dx"), "{text}");
    let config = ["run", plan, "--random", "1", "--config", "pointwise{}"];
    fails(2, "--config requires a problem", &config);
    let made_for = format!("the plan is for {}", harness::kiln().device().target().name);
    fails(3, &made_for, &["plan", "load", plan, "--device", "sim:t4"]);
}

/// The five examples of fused graphs: settings with their predicted times, a tuned plan, a plan as
/// a file that runs as the reference says.
#[test]
fn the_five_examples_are_explained_tuned_and_loaded() {
    let names =
        ["mlp_bias_gelu", "swiglu", "residual_rmsnorm_matmul", "softmax", "batch_norm_training"];
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.json");
    let (plan, cache) = (plan.to_str().unwrap(), folder.path().to_str().unwrap());
    for name in names {
        let problem = format!("{}/examples/problems/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let text = succeeds(&["engines", &problem, "--device", "sim:h200"]);
        assert!(text.contains("predicted"), "{name}: {text}");
        let tune = ["tune", &problem, "--settings", "2", "--cache-dir", cache, "--device", "sim"];
        let text = succeeds(&tune);
        assert!(text.contains("kept in "), "{name}: {text}");
        succeeds(&["plan", "save", &problem, "-o", plan, "--cache-dir", cache]);
        let loaded = json(&succeeds(&["plan", "load", plan, "--json"]));
        assert!(!loaded["kernels"].as_array().unwrap().is_empty(), "{name}: {loaded}");
        let text = succeeds(&["run", plan, "--random", "1", "--check"]);
        assert!(text.contains("check   "), "{name}: {text}");
    }
}

#[test]
fn tuning_keeps_the_best() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().to_str().unwrap();
    let tune = ["tune", PROBLEM, "--settings", "3", "--cache-dir", cache, "--device", "sim"];
    let text = succeeds(&tune);
    assert!(text.contains("best    pointwise{") && text.contains("kept in "), "{text}");
    let document = json(&succeeds(&[&tune[..], &["--json"]].concat()));
    assert_eq!(document["parts"][0]["tried"].as_array().unwrap().len(), 3);
    fails(2, "nothing to measure", &["tune", PROBLEM, "--settings", "0"]);
    fails(2, "unknown note `magic`", &["tune", PROBLEM, "--without", "magic"]);
}
