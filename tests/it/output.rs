//! What is written, and where: dumps and cache folders that someone prepared, terminals, full
//! disks, secrets.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use kiln::cache::{Held, Key, KeyLock};
use kiln::{Config, Kiln, OperationGraph};
use serde_json::{Value, json};

use crate::cli::{self, PROBLEM};
use crate::dump::dumped;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn fails(output: &Output, code: i32, expected: &str) {
    let errors = text(&output.stderr);
    assert!(output.status.code() == Some(code) && errors.contains(expected), "{output:?}");
}

fn edit(path: &Path, change: impl FnOnce(String) -> String) {
    fs::write(path, change(fs::read_to_string(path).unwrap())).unwrap();
}

#[test]
fn replay_passes_no_option_that_reads_or_writes_files() {
    let folder = tempfile::tempdir().unwrap();
    let own = dumped(folder.path(), &[]);
    let replay = || cli::kiln(&["replay", own.to_str().unwrap(), "--device", "sim"]);
    edit(&own.join("kernel.cu"), |text| text + "// edited\n");
    assert_eq!(replay().status.code(), Some(0));
    let trace = folder.path().join("trace.json");
    for option in ["--include-path=/etc", &format!("--fdevice-time-trace={}", trace.display())] {
        edit(&own.join("options.txt"), |text| text + option + "\n");
        fails(&replay(), 2, &format!("the option `{option}` is not one of code generation"));
        assert!(!trace.exists());
        edit(&own.join("options.txt"), |text| text.replace(&format!("{option}\n"), ""));
    }
    edit(&own.join("spec.json"), |text| {
        let mut spec: Value = cli::json(&text);
        spec["stem"] = json!("../../outside\u{1b}");
        spec.to_string()
    });
    let output = replay();
    fails(&output, 2, "names a kernel `../../outside<U+001B>`, which is no word");
}

#[test]
fn dumps_follow_no_link_and_overwrite_no_edit() {
    let folder = tempfile::tempdir().unwrap();
    let [dumps, victim] = ["dumps", "victim"].map(|name| folder.path().join(name));
    fs::write(&victim, "precious").unwrap();
    let own = dumped(&dumps, &[]);
    let dump = || cli::kiln(&["dump", PROBLEM, "-o", dumps.to_str().unwrap(), "--device", "sim"]);
    let planted = ["spec.json", "kernel.cubin", "log.txt", "kernel.sass", "inputs.safetensors"];
    for name in planted {
        let _ = fs::remove_file(own.join(name));
        symlink(&victim, own.join(name)).unwrap();
    }
    let output = dump();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert!(!own.join("log.txt").is_symlink() && !own.join("inputs.safetensors").is_symlink());
    let source = own.join("kernel.cu");
    edit(&source, |text| text + "// mine\n");
    fails(&dump(), 5, "kernel.cu was edited, it is not overwritten");
    assert!(fs::read_to_string(&source).unwrap().ends_with("// mine\n"));
    // The kernel's whole folder.
    fs::remove_dir_all(&own).unwrap();
    let elsewhere = folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, &own).unwrap();
    fails(&dump(), 5, "failed to write dump `");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    // The folder of all, and a page.
    fs::remove_dir_all(&dumps).unwrap();
    symlink(&elsewhere, &dumps).unwrap();
    fails(&dump(), 5, "the folder is a symbolic link, which dumps do not follow");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    let page = folder.path().join("page.html");
    symlink(&victim, &page).unwrap();
    let page = ["--html", page.to_str().unwrap(), "--random", "1"];
    let output = cli::kiln(&[&["dump", PROBLEM, "--device", "sim"], &page[..]].concat());
    fails(&output, 5, "failed to write page `");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
}

fn small() -> OperationGraph {
    OperationGraph::from_json(&fs::read_to_string(PROBLEM).unwrap()).unwrap()
}

/// A cache of its own with the problem's kernel: the folder, the kernel's key and its file.
fn cached(folder: &Path) -> (PathBuf, Key, PathBuf) {
    let cache = folder.join("cache");
    let device = Some("sim".parse().unwrap());
    let config = Config { device, cache_dir: Some(cache.clone()), ..Config::default() };
    let kiln = Kiln::open(config).unwrap();
    let key = kiln.plan(&small()).unwrap().kernels()[0].report().key;
    let path = kiln.disk_cache().unwrap().path_of(key);
    (cache, key, path)
}

fn run_with(cache: &Path) -> (Value, String) {
    let mut command = cli::command(&["run", PROBLEM, "--random", "1", "--device", "sim", "--json"]);
    let output = command.env("KILN_CACHE_DIR", cache).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    (cli::json(&text(&output.stdout)), text(&output.stderr))
}

#[test]
fn entries_that_others_may_write_are_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, _, path) = cached(folder.path());
    let mode = |path: &Path, mode: u32| fs::set_permissions(path, Permissions::from_mode(mode));
    let (report, errors) = run_with(&cache);
    assert!(report.to_string().contains("disk hit") && errors.is_empty(), "{report:#} {errors}");
    // The entry is made anew, and right.
    mode(&path, 0o666).unwrap();
    let (report, errors) = run_with(&cache);
    assert!(report.to_string().contains("compiled") && errors.contains("mode 666"), "{errors}");
    assert!(run_with(&cache).0.to_string().contains("disk hit"));
    // A shard is not: what is in it is neither read nor written.
    for shard in [path.parent().unwrap(), path.parent().unwrap().parent().unwrap()] {
        mode(shard, 0o777).unwrap();
        let (report, errors) = run_with(&cache);
        let compiled = report.to_string().contains("compiled");
        assert!(compiled && errors.contains("mode 777"), "{report:#} {errors}");
        mode(shard, 0o700).unwrap();
    }
    // Nor is a link, wherever it leads.
    let moved = folder.path().join("moved");
    fs::rename(&path, &moved).unwrap();
    symlink(&moved, &path).unwrap();
    let (report, _) = run_with(&cache);
    assert!(report.to_string().contains("compiled"), "{report:#}");
    assert!(!path.is_symlink(), "the entry took the link's place");
}

#[test]
fn a_long_wait_for_a_lock_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, key, path) = cached(folder.path());
    fs::remove_file(path).unwrap();
    fs::create_dir_all(cache.join("locks")).unwrap();
    let locks = Held::open(&cache.join("locks")).unwrap();
    let lock = KeyLock::acquire(&locks, &key.to_hex()).unwrap();
    let released = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(1800));
        drop(lock);
    });
    let (_, errors) = run_with(&cache);
    released.join().unwrap();
    assert!(errors.contains("waiting for the process that holds `"), "{errors}");
    assert!(errors.contains("20 seconds at most"), "{errors}");
}

#[test]
fn full_disks_are_reported() {
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    for arguments in [
        &["run", PROBLEM, "--random", "1", "--device", "sim"][..],
        &["run", PROBLEM, "--random", "1", "--device", "sim", "--json"],
        &["engines", PROBLEM, "--device", "sim"],
        &["--help"],
        &["--version"],
    ] {
        let output = cli::command(arguments).stdout(full()).output().unwrap();
        fails(&output, 5, "kiln: failed to write to standard output: No space left on device");
    }
    let trace = ["--trace", "/dev/full"];
    let run = ["run", PROBLEM, "--random", "1", "--device", "sim"];
    let output = cli::kiln(&[&trace[..], &run].concat());
    fails(&output, 5, "kiln: failed to write trace `/dev/full`: No space left on device");
    assert!(!text(&output.stderr).contains("panicked"), "{output:?}");
    // A reader that has gone is none of our business.
    let mut child = cli::command(&["engines", PROBLEM, "--device", "sim", "--source"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn names_do_not_steer_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let evil = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}\r\ncheck   dy: ok";
    let renamed = |json: Value| -> Value { rename(json, "dx", &format!("dx{evil}")) };
    let document = renamed(cli::json(&fs::read_to_string(PROBLEM).unwrap()));
    let path = folder.path().join("evil.json");
    fs::write(&path, document.to_string()).unwrap();
    let path = path.to_str().unwrap();
    let run = ["run", path, "--random", "1", "--check", "--device", "sim"];
    let commands = [
        &run[..],
        &["engines", path, "--source", "--device", "sim"],
        &["run", path, "--inputs", "/nowhere", "--device", "sim"],
        &["dump", path, "-o", folder.path().to_str().unwrap(), "--device", "sim"],
    ];
    let harmful = |c: char| c != '\n' && c != '\t' && (c.is_control() || c == '\u{202e}');
    for arguments in commands {
        let output = cli::kiln(arguments);
        let all = text(&output.stdout) + &text(&output.stderr);
        assert!(!all.contains(harmful), "{arguments:?}: {all:?}");
    }
    let shown = text(&cli::kiln(&run).stdout);
    assert!(shown.contains("dx<U+001B>]0;owned<U+0007>"), "{shown}");
    assert_eq!(shown.lines().filter(|line| line.starts_with("check  ")).count(), 1, "{shown}");
    // Documents keep the name.
    let output = cli::kiln(&[&run[..], &["--json"]].concat());
    let shown = text(&output.stdout);
    assert!(!shown.contains(harmful), "{shown:?}");
    assert_eq!(cli::json(&shown)["checks"][0]["tensor"], format!("dx{evil}"), "{shown}");
}

/// Whatever is heard of spans and events, and what is said of arguments.
#[test]
fn names_do_not_steer_the_terminal_of_who_listens() {
    let evil = "\u{1b}[2J\u{9b}31m\u{202e}\u{2066}\u{200b}\rkiln";
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join(evil);
    let [overrides, problem] = ["overrides", "problem.json"].map(|name| own.join(name));
    fs::create_dir_all(&overrides).unwrap();
    fs::write(overrides.join(format!("{evil}.ptx")), "").unwrap();
    let text_of = fs::read_to_string(PROBLEM).unwrap();
    let document = ["x", "dx", "scaled"]
        .iter()
        .fold(cli::json(&text_of), |json, name| rename(json, name, &format!("{name}{evil}")));
    fs::write(&problem, document.to_string()).unwrap();
    let problem = problem.to_str().unwrap();
    let harmful = |c: char| {
        let steers = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}');
        c != '\n' && c != '\t' && (c.is_control() || steers)
    };
    for (arguments, said) in [
        (vec!["run", problem, "--device", "sim"], "stood in for no kernel"),
        (vec!["tune", problem, "--settings", "1", "--device", "sim"], "kernel"),
        (vec!["dump", problem, "--html", "/dev/null", "--device", "sim"], "kernel"),
        (vec!["run", problem, problem], "unexpected argument"),
        (vec!["run", &format!("--{evil}")], "unexpected argument"),
    ] {
        let mut command = cli::command(&arguments);
        command.env("KILN_LOG", "trace").env("KILN_OVERRIDES", &overrides);
        let output = command.env("KILN_CACHE_DIR", own.join("cache")).output().unwrap();
        let all = text(&output.stdout) + &text(&output.stderr);
        assert!(all.contains(said) && all.contains("<U+202E>"), "{arguments:?}: {all:?}");
        assert!(!all.contains(harmful), "{arguments:?}: {all:?}");
    }
}

fn rename(json: Value, from: &str, to: &str) -> Value {
    match json {
        Value::String(text) if text == from => Value::String(to.to_owned()),
        Value::Array(values) => values.into_iter().map(|value| rename(value, from, to)).collect(),
        Value::Object(object) => {
            object.into_iter().map(|(key, value)| (key, rename(value, from, to))).collect()
        }
        other => other,
    }
}

#[test]
fn passwords_of_stores_are_not_shown() {
    for uri in ["redis://me:hunter2@127.0.0.1:1/0", "nonsense://me:hunter2@host?key=hunter2"] {
        let mut command = cli::command(&["doctor", "--device", "sim"]);
        command.env("KILN_REMOTE", uri).env("KILN_LOG", "trace").env("KILN_REMOTE_MS", "50");
        let output = command.output().unwrap();
        let all = text(&output.stdout) + &text(&output.stderr);
        assert!(all.contains("remote") && !all.contains("hunter2"), "{all}");
    }
    // A library logs the whole address of this one, where there is one.
    let said = match cfg!(feature = "remote") {
        true => "engine chosen",
        false => "this build lacks the cargo feature `remote`",
    };
    for level in ["debug", "trace"] {
        let uri = "webdav:///k?endpoint=http://me:hunter2@127.0.0.1:1";
        let mut command = cli::command(&["run", PROBLEM, "--random", "1", "--device", "sim"]);
        command.env("KILN_REMOTE", uri).env("KILN_LOG", level).env("KILN_REMOTE_MS", "50");
        let output = command.output().unwrap();
        let all = text(&output.stdout) + &text(&output.stderr);
        assert!(all.contains(said) && !all.contains("hunter2"), "{all}");
    }
}
