//! The console examples of the documents, run as they stand.
//!
//! A line that begins with `$ ` is a command; the lines below it must all be lines of what it
//! prints, in that order, with `...` for any text. `exit N` at the end of a command is its code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A command, its exit code and the lines it is said to print.
struct Example<'a> {
    command: &'a str,
    code: i32,
    shown: Vec<&'a str>,
}

fn examples(text: &str) -> Vec<Example<'_>> {
    let mut examples: Vec<Example<'_>> = Vec::new();
    for block in text.split("```console\n").skip(1) {
        for line in block.split("\n```").next().unwrap_or("").lines() {
            match (line.strip_prefix("$ "), examples.last_mut()) {
                (Some(command), _) => {
                    let (command, code) = match command.split_once("  # exit ") {
                        Some((command, code)) => (command, code.parse().expect("an exit code")),
                        None => (command, 0),
                    };
                    examples.push(Example { command, code, shown: Vec::new() });
                }
                (None, Some(example)) => example.shown.push(line),
                (None, None) => panic!("output without a command: {line}"),
            }
        }
    }
    examples
}

/// Whether a line is like a pattern in which `...` stands for any text.
fn matches(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split("...");
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.split_once(part) {
            Some((_, behind)) => rest = behind,
            None => return false,
        }
    }
    rest.ends_with(last)
}

fn run(example: &Example<'_>, folder: &Path) {
    let tool = Path::new(env!("CARGO_BIN_EXE_kiln")).parent().expect("binaries are in a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("sh")
        .args(["-c", &format!("{} 2>&1", example.command)])
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", tool.display()))
        .envs(harness::environment())
        .output()
        .expect("the shell starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(example.code), "{}\n{text}", example.command);
    let mut lines = text.lines();
    for shown in &example.shown {
        let found = lines.any(|line| matches(shown, line));
        assert!(found, "{}\nlacks `{shown}`\n{text}", example.command);
    }
}

#[test]
fn the_examples_of_dump_and_replay_run() {
    if harness::kiln().device().kind() != "sim" {
        eprintln!("skipped: the document shows what the simulator prints");
        return;
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    let link = |name: &str| {
        let (to, from): (PathBuf, PathBuf) = (Path::new(ROOT).join(name), folder.path().join(name));
        std::os::unix::fs::symlink(to, from).expect("links can be made");
    };
    link("examples");
    let text = fs::read_to_string(Path::new(ROOT).join("docs/dump-and-replay.md")).unwrap();
    let examples = examples(&text);
    assert!(examples.len() >= 8);
    examples.iter().for_each(|example| run(example, folder.path()));
}

#[test]
fn patterns_match_what_they_say() {
    for (pattern, line, expected) in [
        ("a ... c", "a b c", true),
        ("a ... c", "a b d", false),
        ("...", "anything", true),
        ("a", "ab", false),
        ("x...y...z", "x1y2y3z", true),
    ] {
        assert_eq!(matches(pattern, line), expected, "{pattern} {line}");
    }
}
