//! Dumps: what their folders hold, and that asking for one costs a call nothing but time.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::json;

use crate::cli::{PROBLEM, fails, json, succeeds};
use crate::harness;

/// The kernel's folder of `kiln dump` with these options.
pub fn dumped(root: &Path, options: &[&str]) -> PathBuf {
    let output = root.to_str().expect("temporary folders are UTF-8");
    let shown = succeeds(&[&["dump", PROBLEM, "-o", output, "--device", "sim"], options].concat());
    PathBuf::from(shown.trim_end())
}

/// `kiln run` of the problem with these variables.
pub fn run_with(variables: &[(&str, &str)], options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(["run", PROBLEM, "--random", "1"])
        .args(options)
        .env("KILN_DEVICE", "sim")
        .envs(harness::environment())
        .envs(variables.iter().copied())
        .output()
        .expect("the tool starts")
}

fn argument(tensor: &str, passed: &str, bytes: u64, written: bool) -> serde_json::Value {
    json!({"tensor": tensor, "passed": passed, "bytes": bytes, "written": written})
}

#[test]
fn dumps_hold_everything_about_a_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let own = dumped(folder.path(), &[]);
    let read = |name: &str| fs::read_to_string(own.join(name)).unwrap();
    let spec = json(&read("spec.json"));
    // Rows of x are 1040 elements apart.
    let arguments = json!([
        argument("dy", "address", 8 * 1024 * 2, false),
        argument("loss_scale", "value", 4, false),
        argument("x", "address", (7 * 1040 + 1024) * 2, false),
        argument("dx", "address", 8 * 1024 * 4, true),
    ]);
    assert_eq!(spec["launch"]["arguments"], arguments);
    assert_eq!((&spec["device"], &spec["schema"]), (&json!("sim"), &json!(1)));
    assert_eq!(spec["resources"]["spill_bytes"], 0);
    assert!(read("kernel.cu").contains("op::swish_bwd(x, scaled, 1.5f)"));
    assert!(read("options.txt").contains("--fmad=false"));
    assert!(read("kernel.ptx").contains(".entry pointwise"));
    assert!(fs::read(own.join("kernel.cubin")).unwrap().starts_with(b"\x7fELF"));
    let stack = read("stack.txt");
    // Names of inlined functions lack their path.
    assert!(stack.contains("plan/dump/write.rs") && stack.contains("bin/kiln/main.rs"), "{stack}");
    assert!(!own.join("inputs.safetensors").exists());
    let problem = own.join("problem.json");
    succeeds(&["run", problem.to_str().unwrap(), "--random", "1", "--check"]);
}

#[test]
fn a_run_dumps_the_kernels_that_the_filter_wants() {
    let folder = tempfile::tempdir().unwrap();
    let all = folder.path().join("all");
    let run = |filter: &str| {
        let variables = [("KILN_DUMP", all.to_str().unwrap()), ("KILN_DUMP_FILTER", filter)];
        let output = run_with(&variables, &["--json"]);
        assert!(output.status.success());
        let report = json(&String::from_utf8(output.stdout).unwrap());
        let count = fs::read_dir(&all).map_or(0, Iterator::count);
        (count, report["kernels"][0]["key"].as_str().unwrap().to_owned())
    };
    let (none, key) = run("gemm");
    assert_eq!((none, run(&key[1..]).0, run(&key[..8]).0), (0, 0, 1));
    fs::remove_dir_all(&all).unwrap();
    assert_eq!(run("pointwise").0, 1);
}

#[test]
fn tensors_are_those_of_the_first_launch() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = folder.path().join("out.safetensors");
    let outputs = outputs.to_str().unwrap();
    let dumps = folder.path().join("dumps");
    let variables = [("KILN_DUMP", dumps.to_str().unwrap()), ("KILN_DUMP_TENSORS", "1")];
    let output = run_with(&variables, &["--outputs", outputs]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let own = fs::read_dir(&dumps).unwrap().next().unwrap().unwrap().path();
    let (before, after) = (own.join("inputs.safetensors"), own.join("outputs.safetensors"));
    let data = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        file.tensor("dx").unwrap().data().to_vec()
    };
    assert_eq!(data(&after), data(Path::new(outputs)));
    // The inputs are a tensor file of `kiln run` and give the same.
    let again = folder.path().join("again.safetensors");
    let [before, again] = [&before, &again].map(|path| path.to_str().unwrap());
    succeeds(&["run", PROBLEM, "--device", "sim", "--inputs", before, "--outputs", again]);
    assert_eq!(data(&after), data(Path::new(again)));
    // A dump without tensors does not keep those of another.
    assert_eq!(dumped(&dumps, &[]), own);
    assert!(!after.exists());
}

#[test]
fn what_can_not_be_captured_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let dumps = folder.path().to_str().unwrap();
    let capture = [("KILN_DUMP", dumps), ("KILN_DUMP_TENSORS", "1")];
    let warns = |text: &str, variables: &[(&str, &str)]| {
        let output = run_with(&[&capture, variables].concat(), &[]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && errors.contains(text), "{errors}");
    };
    warns(
        "the tensors of sm75_pointwise_f32_flat are not captured: they span 65760 bytes, \
         the limit is 65759 (KILN_DUMP_TENSOR_BYTES)",
        &[("KILN_DUMP_TENSOR_BYTES", "65759")],
    );
    warns("the null device has no memory", &[("KILN_DEVICE", "null")]);
    warns("failed to write dump `/dev/null/", &[("KILN_DUMP", "/dev/null")]);
    let bad = |variable: &str, text: &str| {
        let output = run_with(&[&capture[..], &[(variable, "x")]].concat(), &[]);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(String::from_utf8_lossy(&output.stderr), text);
    };
    bad("KILN_DUMP_TENSORS", "kiln: environment KILN_DUMP_TENSORS: `x` is neither 0 nor 1\n");
    bad(
        "KILN_DUMP_TENSOR_BYTES",
        "kiln: environment KILN_DUMP_TENSOR_BYTES: `x` is not a number of bytes\n",
    );
    fails(
        2,
        "--inputs and --random require --tensors or --html",
        &["dump", PROBLEM, "-o", dumps, "--random", "1"],
    );
}

#[test]
fn machine_code_is_there_where_a_disassembler_is() {
    let folder = tempfile::tempdir().unwrap();
    let tool = folder.path().join("nvdisasm");
    let dumps = folder.path().join("dumps");
    let dump = |script: &str| {
        fs::write(&tool, script).unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        let output = run_with(&[("KILN_DUMP", dumps.to_str().unwrap()), ("PATH", &path)], &[]);
        assert!(output.status.success());
        let own = fs::read_dir(&dumps).unwrap().next().unwrap().unwrap().path();
        let sass = fs::read_to_string(own.join("kernel.sass")).ok();
        (sass, String::from_utf8(output.stderr).unwrap())
    };
    let (sass, _) = dump("#!/bin/sh\necho \"$1 $2\"; head -c 4 \"$3\" | tail -c 3\n");
    assert_eq!(sass.as_deref(), Some("--print-code --print-line-info\nELF"));
    let (sass, errors) = dump("#!/bin/sh\necho too new >&2; exit 1\n");
    assert_eq!(sass, None);
    assert!(errors.contains("too new; the dump has no SASS"), "{errors}");
}
