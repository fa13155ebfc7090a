//! `kiln replay`: what was dumped gives the same again, what was edited shows its differences.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::{self, fails, succeeds};
use crate::dump::dumped;
use crate::harness;

/// A dump with tensors, in a folder that goes with the guard.
fn dump() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let own = dumped(folder.path(), &["--tensors"]);
    (folder, own)
}

/// Replays on the simulator: exit code and report.
fn replay(own: &Path, options: &[&str]) -> (Option<i32>, Value) {
    let own = own.to_str().expect("temporary folders are UTF-8");
    let output = cli::kiln(&[&["replay", own, "--json", "--device", "sim"], options].concat());
    let text = String::from_utf8(output.stdout).expect("reports are UTF-8");
    assert!(!text.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code(), cli::json(&text))
}

/// The text of a file of the dump, with one place replaced.
fn replaced(path: &Path, from: &str, to: &str) -> String {
    let text = fs::read_to_string(path).expect("readable");
    assert!(text.contains(from), "{text}");
    text.replacen(from, to, 1)
}

const CHAIN: &str = "op::swish_bwd(x, scaled, 1.5f)";
const OTHER_CHAIN: &str = "op::swish_bwd(x, scaled, 1.25f)";

#[test]
fn what_was_dumped_gives_the_same_again() {
    let (_guard, own) = dump();
    let (code, report) = replay(&own, &["--sanitize", "--counters"]);
    assert_eq!((code, &report["faults"]), (Some(0), &json!([])), "{report:#}");
    assert_eq!(
        (&report["inputs"], &report["compared_with"]),
        (&json!("captured"), &json!("captured"))
    );
    assert_eq!(report["differences"][0]["differing"], 0);
    assert_eq!(report["differences"][0]["elements"], 8 * 1024);
    assert_eq!(report["checks"][0]["passed"], true);
    let counters = &report["after"]["counters"];
    assert_eq!(counters, &report["before"]["counters"]);
    // Two 16-byte loads and two 16-byte stores per 8 elements, of every warp.
    assert_eq!(counters["global_requests"], 4 * 8 * 1024 / 8 / 32);
    assert_eq!(report["after"]["registers"], report["before"]["registers"]);
    let text = succeeds(&["replay", own.to_str().unwrap(), "--device", "sim"]);
    assert!(text.contains("captured  dx: 8192 elements, the same bits"), "{text}");
    assert!(text.ends_with("\nthe replay is sound\n"), "{text}");
}

#[test]
fn without_captured_tensors_inputs_are_made_up() {
    let folder = tempfile::tempdir().unwrap();
    let own = dumped(folder.path(), &[]);
    let (code, report) = replay(&own, &[]);
    assert_eq!((code, &report["inputs"]), (Some(0), &json!("random from seed 1")));
    assert_eq!(report["compared_with"], "before");
    let (code, report) = replay(&own, &["--random", "2"]);
    assert_eq!((code, &report["inputs"]), (Some(0), &json!("given")));
    let text = succeeds(&["replay", own.to_str().unwrap(), "--device", "null"]);
    assert!(text.contains("the null device computes nothing: nothing is compared"), "{text}");
}

#[test]
fn an_edited_source_shows_its_differences() {
    let (guard, own) = dump();
    let source = own.join("kernel.cu");
    let edited = guard.path().join("edited.cu");
    let other = replaced(&source, CHAIN, OTHER_CHAIN);
    fs::write(&edited, &other).unwrap();
    let wrong = |report: &Value, path: &Path| {
        assert_eq!(report["edited"], path.to_str().unwrap());
        assert_eq!(report["checks"][0]["passed"], false);
        assert_eq!(report["faults"], json!(["`dx` is not within the reference's bound"]));
        let difference = &report["differences"][0];
        assert!(difference["differing"].as_u64().unwrap() > 8000, "{difference}");
        let first = &difference["first"][0];
        assert_eq!(first["index"], json!([0, 0]));
        assert_ne!(first["was"], first["is"]);
    };
    let (code, report) = replay(&own, &["--edited", edited.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    wrong(&report, &edited);
    // The same edit in the folder itself.
    fs::write(&source, &other).unwrap();
    let (code, report) = replay(&own, &[]);
    assert_eq!(code, Some(1));
    wrong(&report, &source);
    // An edit that rounds as before: twice the instructions of one line, and still right.
    let slower = replaced(&source, OTHER_CHAIN, &format!("{CHAIN} + 0.f * scaled"));
    fs::write(&source, slower).unwrap();
    let (code, report) = replay(&own, &["--counters"]);
    assert_eq!(code, Some(0), "{report:#}");
    let f32_of = |of: &str| report[of]["counters"]["f32"].as_u64().unwrap();
    assert!(f32_of("after") > f32_of("before"), "{report:#}");
}

#[test]
fn an_edited_ptx_needs_no_compiler() {
    let (_guard, own) = dump();
    let ptx = own.join("kernel.ptx");
    let text = fs::read_to_string(&ptx).unwrap();
    let store = text.lines().find(|line| line.contains("st.global")).unwrap();
    let edited = own.join("less.ptx");
    fs::write(&edited, text.replace(store, "")).unwrap();
    let (code, report) = replay(&own, &["--edited", edited.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    let difference = &report["differences"][0];
    assert_eq!((&difference["differing"], &difference["largest"]), (&json!(4096), &json!("inf")));
    assert_eq!(difference["first"][0]["is"], "NaN");
    assert_eq!(report["after"]["registers"], Value::Null);
    // Edited in the folder: what it was is compiled from the source.
    fs::rename(&edited, &ptx).unwrap();
    let (code, again) = replay(&own, &[]);
    assert_eq!((code, &again["differences"]), (Some(1), &report["differences"]));
    assert!(again["before"]["error"].is_null());
}

#[test]
fn what_a_kernel_does_wrong_is_found() {
    let (_guard, own) = dump();
    let edited = own.join("edited.cu");
    let store = "store<dx_layout::ACCESS>(dx + dx_layout::at(p), dx_out, valid);";
    let options = ["--edited", edited.to_str().unwrap(), "--sanitize"];
    let stray = replaced(&own.join("kernel.cu"), store, &store.replace("at(p)", "at(p) + 4096"));
    fs::write(&edited, stray).unwrap();
    let (code, report) = replay(&own, &options);
    let fault = report["faults"][0].as_str().unwrap();
    assert!(
        code == Some(1) && fault.contains("the launch failed: failed to run a kernel"),
        "{fault}"
    );
    assert!(fault.contains("sm75_pointwise_f32_flat.cu:"), "{fault}");
    let unwritten = format!("__shared__ float s[32]; {store} dx[first] = s[first % 32];");
    fs::write(&edited, replaced(&own.join("kernel.cu"), store, &unwritten)).unwrap();
    let (code, report) = replay(&own, &options);
    let findings = report["after"]["findings"].as_array().unwrap();
    assert!(code == Some(1) && findings.len() > 1, "{report:#}");
    let text = findings[0].as_str().unwrap();
    assert!(text.starts_with("uninitialised shared memory: "), "{text}");
    assert_eq!(report["before"]["findings"], json!([]));
}

#[test]
fn what_is_no_dump_is_refused_exactly() {
    let (_guard, own) = dump();
    let shown = own.to_str().unwrap();
    let is_refused = |text: &str| fails(2, text, &["replay", shown]);
    let file = |name: &str| own.join(name);
    let with = |name: &str, bytes: &[u8], text: &str| {
        let kept = fs::read(file(name)).unwrap();
        fs::write(file(name), bytes).unwrap();
        is_refused(text);
        fs::write(file(name), kept).unwrap();
    };
    for name in
        ["spec.json", "problem.json", "kernel.cu", "options.txt", "kernel.ptx", "kernel.cubin"]
    {
        fs::rename(file(name), file("kept")).unwrap();
        is_refused(&format!("failed to read `{shown}/{name}`: No such file"));
        fs::rename(file("kept"), file(name)).unwrap();
    }
    fails(2, "kiln: `/nowhere` is no dump: failed to read", &["replay", "/nowhere"]);
    let spec = fs::read_to_string(file("spec.json")).unwrap();
    let spec_with = |from: &str, to: &str, text: &str| {
        assert!(spec.contains(from), "{spec}");
        with("spec.json", spec.replacen(from, to, 1).as_bytes(), text);
    };
    with("spec.json", b"{", &format!("kiln: malformed `{shown}/spec.json`: EOF while parsing"));
    with("spec.json", b"{}", "spec.json` has no schema: it is no dump's");
    spec_with("\"schema\": 1", "\"schema\": 2", "spec.json` has schema 2, this version reads 1");
    spec_with("\"sm_90a\"", "\"sm_x\"", "unknown architecture `sm_x`");
    spec_with("\"tensor\": \"dy\"", "\"tensor\": \"z\"", "no tensor of the graph is named `z`");
    spec_with(
        "\"bytes\": 16384",
        "\"bytes\": 16383",
        "argument `dy` of 16383 bytes is not the tensor of problem.json: dy: f16[8, 1024]",
    );
    with("problem.json", b"{}", &format!("kiln: `{shown}/problem.json`: malformed problem: "));
    with("inputs.safetensors", b"\xff", "kiln: malformed safetensors file `");
    let outputs = fs::read(file("outputs.safetensors")).unwrap();
    with("inputs.safetensors", &outputs, "inputs.safetensors` holds no tensor `");
    let inputs = fs::read(file("inputs.safetensors")).unwrap();
    let address = String::from_utf8_lossy(&inputs).find("\"0x").unwrap();
    let mut broken = inputs;
    broken[address + 2] = b'y';
    with("inputs.safetensors", &broken, "is no address of tensor `");
    let both = format!("both kernel.cu and kernel.ptx of `{shown}` differ from what was dumped");
    let ptx = fs::read(file("kernel.ptx")).unwrap();
    fs::write(file("kernel.ptx"), [&ptx[..], b"\n"].concat()).unwrap();
    with("kernel.cu", b"\n", &both);
    fs::write(file("kernel.ptx"), ptx).unwrap();
    let edited = |name: &str, text: &str, code: i32, error: &str| {
        fs::write(file(name), text).unwrap();
        fails(code, error, &["replay", shown, "--edited", file(name).to_str().unwrap()]);
    };
    edited("a.txt", "", 2, "a.txt`: an edited kernel is a .cu or a .ptx file");
    edited(
        "a.cu",
        "int f( {",
        4,
        "failed to compile `/kiln/sm75_pointwise_f32_flat.cu`: /kiln/sm75",
    );
    edited("a.cu", "__device__ int f;", 4, "the cubin contains no kernel `pointwise`");
    let rejected = match harness::kiln().device().kind() {
        "sim" => "the simulated device rejected a kernel: ",
        _ => "the driver rejected an image of 9 bytes: ",
    };
    edited("a.ptx", "add.u32;", 4, rejected);
    edited(
        "a.ptx",
        ".version 8.0\n.target sm_90a\n.address_size 64\n",
        4,
        "the PTX contains no kernel `pointwise`",
    );
}

/// A dump is somebody else's text: the compiler's log would show their reader's files.
#[test]
fn dumps_read_no_files() {
    let (guard, own) = dump();
    let (shown, source) = (own.to_str().unwrap(), own.join("kernel.cu"));
    let secret = guard.path().join("secret.txt");
    fs::write(&secret, "what nobody else may read\n").unwrap();
    let secret = secret.to_str().unwrap();
    let kernel = fs::read_to_string(&source).unwrap();
    let lines = kernel.lines().count();
    let refused = |text: &str, line: usize, found: &str, arguments: &[&str]| {
        let output = cli::kiln(&[&["replay", shown, "--device", "sim"], arguments].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        let expected =
            format!("line {line} may read a file: `{found}`; a dumped kernel is one text");
        assert!(errors.contains(&expected), "{text:?}: {errors}");
        assert_eq!(output.status.code(), Some(2), "{text:?}");
        assert!(!errors.contains("nobody else"), "{errors}");
    };
    let edited = guard.path().join("edited.cu");
    for (text, found) in [
        (format!("#include \"{secret}\""), "#include"),
        (format!("%: /* */ include_next \"{secret}\""), "%:include_next"),
        (format!("#\rinclude \"{secret}\""), "#include"),
        (format!("#inc\\\nlude \"{secret}\""), "#include"),
        (format!("#embed \"{secret}\""), "#embed"),
        (format!("??=include \"{secret}\""), "??="),
        (format!("#if __has_include(\"{secret}\")\n#error it is there\n#endif"), "__has_include"),
        (
            format!("#define C(a, b) a%:%:b\n#if C(__has_, include)(\"{secret}\")\n#error\n#endif"),
            "%:%:",
        ),
    ] {
        fs::write(&source, format!("{kernel}{text}\n")).unwrap();
        refused(&text, lines + 1, found, &[]);
        fs::write(&source, &kernel).unwrap();
        fs::write(&edited, format!("{text}\n{kernel}")).unwrap();
        refused(&text, 1, found, &["--edited", edited.to_str().unwrap()]);
    }
    let options = fs::read_to_string(own.join("options.txt")).unwrap();
    assert!(options.contains("--std=c++17"), "{options}");
    // Of a later standard, `import` is a directive.
    fs::write(own.join("options.txt"), options.replace("c++17", "c++20")).unwrap();
    fails(2, "the option `--std=c++20` is not one of code generation", &["replay", shown]);
}

/// Of names of tensors, kernels hold what identifiers and comments can: nothing that reads a file.
#[test]
fn names_that_look_like_directives_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let problem = folder.path().join("problem.json");
    let name = |of: &str| format!("x\n#include \"/etc/passwd\"\n##__has_include {of}");
    let tensor = |of: &str| json!({"name": name(of), "dtype": "f32", "dims": [16, 16]});
    let operation = json!({
        "pointwise": "add", "inputs": [name("a"), name("b")], "output": name("y"),
    });
    let tensors = ["a", "b", "y"].map(tensor);
    let graph = json!({"graph": {"tensors": tensors, "operations": [operation]}});
    fs::write(&problem, graph.to_string()).unwrap();
    let dumps = folder.path().join("dumps");
    let [problem, shown] = [&problem, &dumps].map(|path| path.to_str().unwrap());
    succeeds(&["dump", problem, "-o", shown, "--device", "sim"]);
    let own = fs::read_dir(&dumps).unwrap().next().unwrap().unwrap().path();
    let kernel = fs::read_to_string(own.join("kernel.cu")).unwrap();
    assert!(kernel.contains("passwd_has_include_a: f32"), "{kernel}");
    assert_eq!(replay(&own, &[]).0, Some(0));
}
