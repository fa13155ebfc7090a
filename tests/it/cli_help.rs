//! What the tool says of itself: help, completions, exit codes, progress.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kiln::device::Device;
use kiln::plan::{VARIABLES, Variable};

use crate::cli::{self, PROBLEM};
use crate::harness;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, files),
            false => files.push(path),
        }
    }
}

#[test]
fn help_lists_every_variable_and_every_command() {
    let mut files = Vec::new();
    sources(&Path::new(ROOT).join("src"), &mut files);
    let mut variables = BTreeSet::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        for part in text.split("\"KILN_").skip(1) {
            let name = part.split(|c: char| !c.is_ascii_uppercase() && c != '_').next();
            variables.insert(format!("KILN_{}", name.unwrap()));
        }
    }
    assert!(variables.len() > 20, "{variables:?}");
    let help = cli::succeeds(&["--help"]);
    let words: BTreeSet<&str> =
        help.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let missing: Vec<&String> =
        variables.iter().filter(|name| !words.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let document = fs::read_to_string(Path::new(ROOT).join("docs/environment.md")).unwrap();
    let missing: Vec<&String> =
        variables.iter().filter(|name| !document.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/environment.md: {missing:?}");
    for kind in ["problem file", "recurrent network", "attention"] {
        let bench = help.lines().find(|line| line.trim_start().starts_with("bench ")).unwrap();
        assert!(bench.contains(kind), "{bench}");
    }
}

/// `make readme` writes the table anew.
#[test]
fn the_document_of_variables_is_the_table() {
    let path = Path::new(ROOT).join("docs/environment.md");
    let text = fs::read_to_string(&path).unwrap();
    let mut table = "| variable | `Config` | values | default |\n|---|---|---|---|\n".to_owned();
    for Variable { name, field, values, default, .. } in VARIABLES {
        table += &format!("| `{name}` | `{field}` | {values} | {default} |\n");
    }
    let start = text.find("| variable | `Config`").expect("the table begins so");
    let end = start + text[start..].find("\n\n").expect("text follows it") + 1;
    if std::env::var("KILN_README").is_ok_and(|mode| mode == "rewrite") {
        fs::write(&path, format!("{}{table}{}", &text[..start], &text[end..])).unwrap();
    } else {
        assert_eq!(&text[start..end], table, "`make readme` rewrites it");
    }
}

#[test]
fn shells_complete_commands_and_options() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = cli::succeeds(&["completions", shell]);
        for word in ["replay", "sanitize", "attention"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let script = cli::succeeds(&["completions", "bash"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kiln.bash");
    fs::write(&path, script).unwrap();
    let asked = "source \"$0\"; COMP_WORDS=(kiln rep); COMP_CWORD=1; _kiln kiln rep kiln; \
                 echo \"${COMPREPLY[@]}\"";
    let output = Command::new("bash").arg("-c").arg(asked).arg(&path).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "replay");
}

/// A command for every line of the table in `kiln --help`.
#[test]
fn exit_codes_are_those_of_the_table() {
    let help = cli::succeeds(&["--help"]);
    let table = help.split_once("Exit codes:").unwrap().1.split_once("Environment:").unwrap().0;
    let listed: Vec<i32> =
        table.lines().filter_map(|line| line.get(..3)?.trim().parse().ok()).collect();
    // `drivers` has a command for 6.
    assert_eq!(listed, [0, 1, 2, 3, 4, 5, 6]);
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let broken = write("broken.json", "{\"graph\": 1}");
    let plan = write("plan.json", "");
    cli::succeeds(&["plan", "save", PROBLEM, "-o", &plan, "--device", "sim"]);
    let cache = folder.path().join("cache");
    let cache = cache.to_str().unwrap();
    // Where there are GPUs, one of them was to be named.
    let no_such_gpu = if Device::cuda_count().is_ok() { 2 } else { 5 };
    for (code, arguments) in [
        (0, vec!["--version"]),
        (0, vec!["run", "--help"]),
        (1, vec!["doctor", "--nvrtc", "/nonexistent"]),
        (2, vec![]),
        (2, vec!["nothing"]),
        (2, vec!["run"]),
        (2, vec!["run", "/nonexistent.json"]),
        (2, vec!["run", &broken]),
        (2, vec!["run", PROBLEM, "--device", "nothing"]),
        (3, vec!["plan", "load", &plan, "--device", "sim:t4"]),
        (4, vec!["run", PROBLEM, "--nvrtc", "/nonexistent", "--cache-dir", cache]),
        (no_such_gpu, vec!["run", PROBLEM, "--device", "cuda:99"]),
    ] {
        let output = cli::kiln(&arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
    }
    // What cannot be written is no success.
    if let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        let command = command.args(["engines", PROBLEM]).envs(harness::environment());
        let output = command.stdout(full).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(5));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("failed to write to standard output: No space left"), "{errors}");
    }
}

#[test]
fn errors_in_a_file_name_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.json");
    let shown = path.to_str().unwrap();
    for (text, error) in [
        ("{\"graph\": 1}", "malformed problem"),
        ("{\"nothing\": 1}", "malformed problem: unknown key `nothing`"),
        ("[", "malformed problem"),
        ("{\"rnn\": {}}", "malformed"),
    ] {
        fs::write(&path, text).unwrap();
        for command in ["run", "engines", "tune"] {
            let named = format!("kiln: `{shown}`: ");
            cli::fails(2, &named, &[command, shown]);
            cli::fails(2, error, &[command, shown]);
        }
        cli::fails(2, shown, &["dump", shown, "-o", "/tmp/nowhere"]);
        cli::fails(2, shown, &["plan", "save", shown, "-o", "/tmp/nowhere"]);
    }
}

#[test]
fn a_run_without_inputs_makes_them_up_and_says_so() {
    let text = cli::succeeds(&["run", PROBLEM, "--check"]);
    let said = "inputs  random, from seed 1 (change with --random SEED or --inputs FILE)";
    assert!(text.contains(said), "{text}");
    let [own, given] =
        [&["run", PROBLEM, "--json"][..], &["run", PROBLEM, "--random", "1", "--json"]]
            .map(|arguments| cli::json(&cli::succeeds(arguments)));
    assert_eq!(own["parts"], given["parts"]);
}

#[test]
fn plans_are_saved_for_programs_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    let path = path.to_str().unwrap();
    let saved = cli::json(&cli::succeeds(&["plan", "save", PROBLEM, "-o", path, "--json"]));
    let loaded = cli::json(&cli::succeeds(&["plan", "load", path, "--json"]));
    assert_eq!(saved["path"], path);
    for key in ["device", "parts", "workspace_bytes"] {
        assert_eq!(saved[key], loaded[key], "{key}");
    }
    assert!(!saved["parts"].as_array().unwrap().is_empty());
    assert_eq!(saved["kernels"][0]["kernel"], loaded["kernels"][0]["kernel"]);
}

#[test]
fn several_dumps_are_replayed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let dumps = folder.path().to_str().unwrap();
    let problem = |name: &str| format!("{ROOT}/examples/problems/{name}.json");
    cli::succeeds(&["dump", PROBLEM, &problem("softmax"), "-o", dumps]);
    let mut folders: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path().to_str().unwrap().to_owned())
        .collect();
    folders.sort();
    assert_eq!(folders.len(), 2);
    let arguments = |more: &[&'static str]| -> Vec<String> {
        let words = ["replay"].iter().map(|word| (*word).to_owned());
        words.chain(folders.clone()).chain(more.iter().map(|word| (*word).to_owned())).collect()
    };
    let run = |more: &[&'static str]| {
        let arguments = arguments(more);
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        cli::kiln(&words)
    };
    let output = run(&[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!((output.status.code(), text.matches("the replay is sound").count()), (Some(0), 2));
    let output = run(&["--json"]);
    let documents = serde_json::Deserializer::from_slice(&output.stdout);
    assert_eq!(documents.into_iter::<serde_json::Value>().map(Result::unwrap).count(), 2);
    let output = run(&["--edited", "other.cu"]);
    assert_eq!(output.status.code(), Some(2));
    // An edit that does not compile ends it, with that code.
    let source = Path::new(&folders[0]).join("kernel.cu");
    let text = fs::read_to_string(&source).unwrap();
    fs::write(&source, format!("{text}\n#error edited\n")).unwrap();
    let output = run(&[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(4), "{text}");
}
