//! The transcripts of the README: what its commands print now, but for how long they took. `make
//! readme` writes them anew.

use std::path::Path;
use std::process::{Command, Output};

use crate::harness;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const UNITS: [&str; 4] = ["ns", "us", "ms", "s"];

fn text(output: Output, what: &str) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a command prints on a machine without a GPU whose cache is empty.
fn printed(command: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let tool = |arguments: &[&str]| {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_kiln"));
        let tool = tool.args(arguments).envs(harness::environment()).env("KILN_DEVICE", "sim");
        let output = tool.env("KILN_CACHE_DIR", folder.path()).output().expect("the tool starts");
        let kept = folder.path().to_str().unwrap();
        text(output, command).replace(kept, "~/.cache/kiln")
    };
    if command == "make demo" {
        let setup = Command::new(Path::new(ROOT).join("scripts/setup.sh")).output();
        return text(setup.expect("the script starts"), command) + &tool(&["demo"]);
    }
    let arguments: Vec<&str> = command.split_whitespace().collect();
    assert_eq!(arguments[0], "kiln", "{command}");
    tool(&arguments[1..])
}

/// A line without what differs from run to run: times, columns as wide as they are, and which NVRTC
/// is there.
fn lasting(line: &str) -> String {
    if line.starts_with("setup: NVRTC: ") {
        return "setup: NVRTC".to_owned();
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    let time =
        |at: usize| is_number(words[at]) && words.get(at + 1).is_some_and(|of| UNITS.contains(of));
    let shown = |at: usize| match at {
        at if time(at) => "TIME",
        at if at > 0 && time(at - 1) => "",
        at => words[at],
    };
    let words: Vec<&str> = (0..words.len()).map(shown).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// The commands that the README shows alone, and what it says they print.
fn transcripts(readme: &str) -> Vec<(&str, &str)> {
    let parts = readme.split("```console\n").skip(1).filter_map(|block| {
        let block = block.split("\n```").next()?;
        let (command, output) = block.split_once('\n')?;
        let commands = block.lines().filter(|line| line.starts_with("$ ")).count();
        (commands == 1).then_some((command.strip_prefix("$ ")?, output))
    });
    parts.collect()
}

#[test]
fn transcripts_are_what_is_printed() {
    let path = Path::new(ROOT).join("README.md");
    let readme = std::fs::read_to_string(&path).unwrap();
    let transcripts = transcripts(&readme);
    assert!(transcripts.len() >= 2, "{transcripts:?}");
    let mut rewritten = readme.clone();
    for (command, shown) in transcripts {
        let now = printed(command);
        let now = now.trim_end();
        let [was, is] = [shown, now].map(|text| text.lines().map(lasting).collect::<Vec<_>>());
        if std::env::var_os("KILN_README").is_none() {
            assert_eq!(was, is, "{command}: rewrite it with `make readme`");
        }
        // Times alone are no reason to write it anew.
        if was != is {
            rewritten = rewritten.replace(shown, now);
        }
    }
    if std::env::var("KILN_README").is_ok_and(|what| what == "rewrite") {
        std::fs::write(path, rewritten).unwrap();
    }
}

/// Commands whose output is not shown: they are there, with their options and files.
#[test]
fn commands_are_there() {
    let readme = std::fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap();
    let commands: Vec<&str> = readme.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert!(commands.len() > 15, "{commands:?}");
    for command in commands {
        let words: Vec<&str> = command.split_whitespace().collect();
        if words[0] == "make" {
            let makefile = std::fs::read_to_string(Path::new(ROOT).join("Makefile")).unwrap();
            assert!(makefile.contains(&format!("\n{}:", words[1])), "{command}");
            continue;
        }
        let bare = |word: &&&str| !word.contains(['/', '-', '.', '*', '=']) && word.len() > 1;
        let subcommands: Vec<&str> = words[1..].iter().take_while(bare).copied().collect();
        let mut tool = Command::new(env!("CARGO_BIN_EXE_kiln"));
        let help = tool.args(&subcommands).arg("--help").output().expect("the tool starts");
        let help = text(help, command);
        for word in &words[1..] {
            let option = word.strip_prefix("--").map(|option| format!("--{option}"));
            let option = option.or_else(|| word.starts_with('-').then(|| format!("{word},")));
            assert!(option.is_none_or(|option| help.contains(&option)), "{command}: {word}");
            let missing = word.starts_with("examples/")
                && !word.contains('*')
                && !Path::new(ROOT).join(word).exists();
            assert!(!missing, "{command}: {word}");
        }
    }
}
