//! Whatever lasts longer than two seconds says what it is doing. The work is made to last by a
//! compiler that takes five seconds for whatever it compiles.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::cli::{self, PROBLEM};
use crate::harness;

/// What stands between Kiln and NVRTC: its other functions are found in the library behind it.
const SLOW: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

typedef int Compile(void* program, int count, const char* const* options);

int nvrtcCompileProgram(void* program, int count, const char* const* options) {
    sleep(5);
    return ((Compile*)dlsym(RTLD_NEXT, "nvrtcCompileProgram"))(program, count, options);
}
"#;

const SILENCE: Duration = Duration::from_secs(2);

/// What is left to a machine that does other work: to start a command, to wake its clock.
const SLACK: Duration = Duration::from_secs(20);

/// A library that compiles slowly, in a folder.
fn slow_compiler(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("slow.c"), folder.join("libnvrtc.so.13"));
    fs::write(&source, SLOW).unwrap();
    let real = harness::kiln().compiler().unwrap().path().canonicalize().unwrap();
    let beside = real.parent().unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-Wl,--no-as-needed");
    cc.arg(format!("-Wl,-rpath,{}", beside.display())).arg(&real).arg("-ldl");
    let output = cc.output().expect("there is a C compiler");
    assert!(output.status.success(), "{output:?}");
    for entry in fs::read_dir(beside).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("libnvrtc-builtins.so") {
            symlink(&path, folder.join(name)).unwrap();
        }
    }
    library
}

/// Runs a command until it has said what it is doing.
fn check(arguments: &[&str], compiler: &Path, cache: &Path) {
    let mut command = cli::command(arguments);
    command.env("KILN_NVRTC", compiler).env("KILN_CACHE_DIR", cache).env("KILN_DEVICE", "sim");
    let started = Instant::now();
    let mut child =
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the tool starts");
    let mut heard = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let said = heard.find(|line| line.contains(" s so far"));
    let elapsed = started.elapsed();
    child.kill().and_then(|()| child.wait()).unwrap();
    let said = said.unwrap_or_else(|| panic!("{arguments:?} ended in silence after {elapsed:?}"));
    assert!(said.starts_with("kiln: ") && !said.contains("starting"), "{arguments:?}: {said}");
    assert!(elapsed >= SILENCE && elapsed < SILENCE + SLACK, "{arguments:?}: {elapsed:?}: {said}");
    // By the tool's own clock, which other work does not stretch as much.
    let seconds = said.rsplit(", ").next().and_then(|rest| rest.split(' ').next());
    let seconds: u64 = seconds.unwrap().parse().unwrap();
    assert!(seconds <= 3, "{arguments:?}: {said}");
}

#[test]
fn long_work_says_what_it_is_doing_within_two_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let compiler = slow_compiler(folder.path());
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let manifest = file("manifest.toml");
    fs::write(&manifest, format!("targets = [\"sim\"]\n[[problem]]\nfile = {PROBLEM:?}\n"))
        .unwrap();
    let [page, dumps, plan, pack] = ["page.html", "dumps", "plan.json", "a.kilnpack"].map(file);
    let commands = [
        &["run", PROBLEM, "--check"][..],
        &["run", PROBLEM, "--json"],
        &["dump", PROBLEM, "-o", &dumps],
        &["dump", PROBLEM, "--html", &page],
        &["tune", PROBLEM],
        &["tune", PROBLEM, "--json"],
        &["warm", &manifest],
        &["warm", &manifest, "--json"],
        &["pack", "build", &manifest, "--target", "sim", "-o", &pack],
        &["plan", "save", PROBLEM, "-o", &plan],
        &["bench", "graph", PROBLEM],
        &["bench", "rnn", "--json"],
        &["bench", "attention"],
        &["demo"],
        &["demo", "--rnn"],
        &["demo", "--attention"],
        &["doctor"],
    ];
    // They wait for most of the time.
    std::thread::scope(|scope| {
        for (number, arguments) in commands.iter().enumerate() {
            let cache = folder.path().join(number.to_string());
            let compiler = &compiler;
            scope.spawn(move || check(arguments, compiler, &cache));
        }
    });
}
