//! `benches/gpu/check.py`, which runs these tests on a GPU, survives faults and names the guilty:
//! with a stand-in for the tests, and with two of them on the simulated driver, which plants a
//! fault.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use kiln::expr::{Mode, Pointwise};
use kiln::graph::{Reduction, ReductionOp};
use kiln::{DType, OperationGraph};
use serde_json::Value;

use crate::harness::{self, Values};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What a run of the checks has left.
struct Checked {
    code: Option<i32>,
    printed: String,
    summary: String,
    /// The last record of each test, by whether it ran alone.
    records: HashMap<(String, bool), Value>,
}

impl Checked {
    fn outcome(&self, test: &str, alone: bool) -> Option<&str> {
        self.records.get(&(test.to_owned(), alone)).map(|of| of["outcome"].as_str().unwrap())
    }
}

/// Runs the checks of a binary with variables; `None` where there is no Python.
fn check(
    out: &Path,
    binary: &Path,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Option<Checked> {
    let mut command = Command::new("python3");
    command.arg(root().join("benches/gpu/check.py")).arg("--binary").arg(binary).args(arguments);
    command.env("OUT", out).envs(variables.iter().copied()).envs(harness::environment());
    let output = match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: no python3");
            return None;
        }
        output => output.unwrap(),
    };
    let printed =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat();
    let lines = fs::read_to_string(out.join("check.jsonl"));
    let lines = lines.unwrap_or_else(|error| panic!("{error}: {printed}"));
    let mut records = HashMap::new();
    for line in lines.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let test = record["test"].as_str().unwrap().to_owned();
        records.insert((test, record["alone"].as_bool().unwrap()), record);
    }
    let summary = fs::read_to_string(out.join("check.txt")).unwrap();
    Some(Checked { code: output.status.code(), printed, summary, records })
}

/// Tests of four modules, as libtest runs them: one crashes before the next, one loses the device
/// to those after it, one hangs, the others pass.
const STAND_IN: &str = r#"#!/bin/sh
if [ "$1" = --list ]; then
    for test in calm::a calm::b crash::a crash::b crash::c lost::a lost::b slow::a slow::b; do
        echo "$test: test"
    done
    exit
fi
lost=
failed() {
    lost="$lost
---- $1 stdout ----
thread '$1' panicked at x.rs:1:1:
DeviceLost: failed to run: the device is lost: CUDA_ERROR_ILLEGAL_ADDRESS in \`some_kernel\`
"
    echo "test $1 ... FAILED"
}
for test in "$@"; do
    case $test in
    crash::b) kill -SEGV $$ ;;
    lost::a) failed "$test" ;;
    lost::b) if [ "$lost" ]; then failed "$test"; else echo "test $test ... ok"; fi ;;
    slow::a)
        echo "TRACE kiln::device::cuda: launch first" >&2
        echo "TRACE kiln::device::cuda: launch endless" >&2
        sleep 600
        ;;
    *::*) echo "test $test ... ok" ;;
    esac
done
[ -z "$lost" ] || { echo "failures:$lost"; exit 101; }
"#;

#[test]
fn a_fault_costs_its_group_and_the_guilty_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("tests");
    fs::write(&binary, STAND_IN).unwrap();
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
    let out = folder.path().join("out");
    let Some(done) = check(&out, &binary, &["--timeout", "3", "--jobs", "2"], &[]) else { return };
    assert_eq!(done.code, Some(1), "{}", done.printed);
    let outcomes = |test| [false, true].map(|alone| done.outcome(test, alone).unwrap_or("-"));
    for (test, expected) in [
        ("calm::a", ["passed", "-"]),
        ("crash::a", ["passed", "-"]),
        ("crash::b", ["crashed", "crashed"]),
        ("crash::c", ["crashed", "passed"]),
        ("lost::a", ["failed", "failed"]),
        ("lost::b", ["failed", "passed"]),
        ("slow::a", ["timed out", "timed out"]),
        ("slow::b", ["timed out", "passed"]),
    ] {
        assert_eq!(outcomes(test), expected, "{test}: {}", done.printed);
    }
    let text = &done.summary;
    for expected in [
        "    3 passed\n",
        "    3 passed alone, after another test of its group had a fault\n",
        "crash::b: crashed\n    ended by SIGSEGV\n",
        "lost::a: failed\n    lost the device: CUDA_ERROR_ILLEGAL_ADDRESS, kernel: some_kernel\n",
        "slow::a: timed out\n    launched last: endless\n    3 s without a launch",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    assert!(!text.contains("crash::c:") && !text.contains("lost::b:"), "{text}");

    // What has results does not run again, and the results stay.
    fs::write(&binary, STAND_IN.replace("sleep 600", "exit 7")).unwrap();
    let again = check(&out, &binary, &["--resume"], &[]).unwrap();
    assert_eq!((again.code, again.summary), (Some(1), done.summary));
}

/// What two tests below run where the checks are tested; what they need is in one kernel each.
fn runs(graph: &OperationGraph) {
    let inputs: Values = graph.inputs().map(|of| (of.uid, harness::fill(of, 3, 1.0))).collect();
    harness::check(harness::kiln(), graph, None, &inputs, "a small graph");
}

#[test]
fn runs_one_pointwise_kernel() {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[64, 32], DType::F32);
    let y = graph.pointwise(Pointwise::new(Mode::TanhFwd), &[x]).unwrap();
    graph.output(y, "y", DType::F32);
    runs(&graph.build().unwrap());
}

#[test]
fn runs_one_reduction_kernel() {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[64, 32], DType::F32);
    let y = graph.reduction(Reduction::new(ReductionOp::Add), x, &[64, 1]).unwrap();
    graph.output(y, "y", DType::F32);
    runs(&graph.build().unwrap());
}

#[test]
fn a_planted_fault_is_found_on_the_simulated_driver() {
    let Some(driver) = harness::simulated_driver() else { return };
    let driver = driver.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let tests = std::env::current_exe().unwrap();
    let own = [("LD_PRELOAD", driver), ("CUDA_FORCE_PTX_JIT", "1"), ("KILN_DEVICE", "cuda:0")];
    let with = |more| [&own[..], &[more]].concat();
    let (pointwise, reduction) =
        ("gpu_check::runs_one_pointwise_kernel", "gpu_check::runs_one_reduction_kernel");

    let faulty = with(("KILN_SIM_FAULT", "reduction"));
    let out = folder.path().join("fault");
    let Some(done) = check(&out, &tests, &["gpu_check::runs_"], &faulty) else { return };
    assert_eq!(done.code, Some(1), "{}", done.printed);
    let record = &done.records[&(reduction.to_owned(), true)];
    assert_eq!(record["outcome"], "failed", "{}", done.printed);
    assert_eq!(record["lost"]["code"], "CUDA_ERROR_ILLEGAL_ADDRESS", "{record}");
    let kernels = record["lost"]["kernels"].as_array().unwrap();
    let [kernel] = &kernels[..] else { panic!("{record}") };
    assert!(kernel.as_str().unwrap().contains("reduction"), "{record}");
    assert!(record["error"].as_str().unwrap().contains("DeviceLost: "), "{record}");
    // The other one ran before it, or alone.
    let other = [false, true].map(|alone| done.outcome(pointwise, alone));
    assert!(other.contains(&Some("passed")), "{}", done.printed);
    assert!(!done.summary.contains(&format!("{pointwise}:")), "{}", done.summary);

    // A kernel that hangs is the last that was launched.
    let hanging = with(("KILN_SIM_HANG", "reduction"));
    let out = folder.path().join("hang");
    let arguments = ["gpu_check::runs_one_red", "--timeout", "20"];
    let done = check(&out, &tests, &arguments, &hanging).unwrap();
    let record = &done.records[&(reduction.to_owned(), true)];
    assert_eq!((done.code, record["outcome"].as_str()), (Some(1), Some("timed out")), "{record}");
    assert!(record["last_launched"].as_str().unwrap().contains("reduction"), "{record}");
}
