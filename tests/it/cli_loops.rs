//! Networks with loops on the command line.

use std::process::Command;

use crate::harness;

fn kiln(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .envs(harness::environment())
        .output()
        .expect("the tool starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

const COUNTING: &str = "examples/loops/counting.json";

#[test]
fn a_network_is_run_and_checked() {
    let (code, text, errors) = kiln(&["run", COUNTING, "--check", "--device", "sim"]);
    assert_eq!(code, Some(0), "{text}{errors}");
    assert!(text.contains("check   all: 8 elements ok, all exact"), "{text}");
    let (code, text, errors) = kiln(&["run", COUNTING, "--check", "--json", "--device", "sim"]);
    assert_eq!(code, Some(0), "{errors}");
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["checks"][0]["passed"], true, "{text}");
}

#[test]
fn how_a_network_is_run_is_printed() {
    let (code, text, errors) = kiln(&["engines", COUNTING, "--device", "sim"]);
    assert_eq!(code, Some(0), "{errors}");
    let lines = ["loop counting, count n", "loop counting, count n: a pointwise loop of the graph"];
    assert!(lines.iter().all(|line| text.contains(line)), "{text}");
    let (code, text, errors) = kiln(&["engines", COUNTING, "--json", "--device", "sim"]);
    assert_eq!(code, Some(0), "{errors}");
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(document["steps"].as_array().is_some_and(|steps| steps.len() >= 3), "{text}");
}

#[test]
fn what_takes_sequences_of_graphs_says_so() {
    let (code, _, errors) = kiln(&["tune", COUNTING, "--device", "sim"]);
    assert_ne!(code, Some(0));
    assert!(errors.contains("a network with loops is no sequence of graphs"), "{errors}");
    let (code, _, errors) =
        kiln(&["run", COUNTING, "--config", "pointwise{items=2}", "--device", "sim"]);
    assert_ne!(code, Some(0));
    assert!(errors.contains("--config requires a graph"), "{errors}");
}

/// The document that describes the format has the example's.
#[test]
fn the_documents_example_is_the_files() {
    let root = env!("CARGO_MANIFEST_DIR");
    let read = |path: &str| std::fs::read_to_string(format!("{root}/{path}")).unwrap();
    assert!(read("docs/problem-format.md").contains(&read(COUNTING)));
}
