//! The command `kiln-sim`: what it prints, and its exit status.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn below(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn command(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln-sim"));
    command.current_dir(below("tests/readme")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

/// Runs a job, given as text, of a PTX file of the tests or one with an absolute path.
fn job(ptx: &str, job: &str, more: &[&str]) -> Output {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("kiln-sim-{}-{}.json", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, job).unwrap();
    let ptx = below("tests/cuda").join(ptx);
    let both = [ptx.to_str().unwrap(), path.to_str().unwrap()];
    let output = command(&[&both[..], more].concat());
    std::fs::remove_file(&path).unwrap();
    output
}

#[test]
fn the_readme_tells_the_truth() {
    let readme = std::fs::read_to_string(below("README.md")).unwrap();
    let output = command(&["reverse.ptx", "reverse.json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(readme.contains(&format!("```text\n{}```", stdout(&output))), "{}", stdout(&output));
    for (language, file) in [("cuda", "reverse.cu"), ("json", "reverse.json")] {
        let text = std::fs::read_to_string(below(&format!("tests/readme/{file}"))).unwrap();
        assert!(readme.contains(&format!("```{language}\n{text}```")), "{file}");
    }
}

#[test]
fn a_correct_kernel_exits_with_0() {
    let text = r#"{ "kernel": "tiles_clean", "block": [64, 1, 1], "arguments": [
        { "dtype": "u32", "count": 128, "fill": "index" },
        { "dtype": "u32", "count": 64, "print": 3 },
        { "dtype": "i32", "value": 2 } ] }"#;
    let output = job("races.sm_120.ptx", text, &["--machine", "A100"]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    // Word i is (63 - i) + (127 - i).
    assert!(stdout(&output).starts_with("argument 1: 190 188 186 ..\nno findings\n\n"));
    assert!(stdout(&output).contains("A100: 32 blocks or 64 warps per SM (100%"));
}

#[test]
fn everything_is_one_json_value() {
    let output = command(&["reverse.ptx", "reverse.json", "--json", "--machine", "h200"]);
    assert_eq!(output.status.code(), Some(1));
    let value: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!(value["buffers"][0]["values"][0], "63");
    assert_eq!(value["findings"][0]["kind"], "race in shared memory");
    assert_eq!(value["findings"][0]["sites"][1]["source"], "reverse.cu:8");

    assert_eq!(value["counters"]["global"]["requests"], 16);
    assert_eq!(value["estimate"]["machine"], "H200");
    assert_eq!(value["failure"], serde_json::Value::Null);
}

#[test]
fn checks_are_chosen() {
    let chosen = |checks| command(&["reverse.ptx", "reverse.json", "--checks", checks]);
    assert_eq!(chosen("none").status.code(), Some(0));
    assert_eq!(chosen("uninitialised,global,barriers").status.code(), Some(0));
    assert_eq!(chosen("shared").status.code(), Some(1));
    let wrong = chosen("spelling");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("unknown check `spelling`"));
}

#[test]
fn a_job_may_begin_before_the_launch_before_it_has_ended() {
    let text = r#"{ "kernel": "load_early", "block": [64, 1, 1], PROGRAMMATIC "arguments": [
        { "dtype": "u32", "count": 64, "fill": "index" },
        { "dtype": "u32", "count": 64 } ] }"#;
    for (programmatic, status) in [(r#""programmatic": true,"#, 1), ("", 0)] {
        let output =
            job("programmatic.sm_120.ptx", &text.replace("PROGRAMMATIC", programmatic), &[]);
        assert_eq!(output.status.code(), Some(status), "{}", stdout(&output));
        let told = stdout(&output).contains("access before its grid waits: allocation #1");
        assert_eq!(told, status == 1, "{}", stdout(&output));
    }
}

#[test]
fn a_kernel_that_fails_exits_with_1() {
    let text = r#"{ "kernel": "copy", "block": [64, 1, 1], "arguments": [
        { "dtype": "f16", "count": 64, "fill": 1.5 }, { "dtype": "bf16", "count": 64 } ] }"#;
    let output = job("unwritten.sm_80.ptx", text, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).starts_with("failed: load of 4 bytes"), "{}", stdout(&output));
}

#[test]
fn jobs_that_cannot_be_run_exit_with_2() {
    let refused = |text: &str, why: &str| {
        let output = job("unwritten.sm_80.ptx", text, &[]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(why), "{error}");
    };
    refused("{", "failed to read");
    refused("{}", "the job must name a kernel: register_read, ");
    refused(r#"{ "kernel": "none" }"#, "the module has no kernel `none`");
    refused(r#"{ "kernel": "copy" }"#, "`copy` takes 2 arguments, the job has 0");
    refused(r#"{ "kernel": "copy", "colour": 1 }"#, "unknown field `colour`");
    let scalars = r#"{ "kernel": "copy", "arguments": [
        { "dtype": "i32", "value": 1 }, { "dtype": "i32", "value": 1 } ] }"#;
    refused(scalars, "argument 0 has 4 bytes, `copy_param_0` 8");
    let wide = r#"{ "kernel": "copy", "block": [2048, 1, 1], "arguments": [
        { "dtype": "u64", "value": 0 }, { "dtype": "u64", "value": 0 } ] }"#;
    refused(wide, "is not within 1024 threads");
}

#[test]
fn help_has_an_example() {
    let output = command(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("\"kernel\": \"rotate\""));
}

/// A kernel that copies a box of a tensor by its map, and adds a value found by its address.
const BOXES: &str = r#".version 8.6
.target sm_90a
.address_size 64
.visible .entry boxes(.param .align 64 .b8 map[128], .param .u64 addresses, .param .u64 out)
{
.reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %d<6>;
.shared .align 128 .b32 box[32]; .shared .align 8 .b64 done;
ld.param.u64 %d1, [addresses]; ld.param.u64 %d2, [out];
mov.b64 %d3, map; cvta.param.u64 %d4, %d3;
mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0;
@%p1 mbarrier.init.shared.b64 [done], 1;
@%p1 fence.proxy.async;
bar.sync 0;
@!%p1 bra WAIT;
mbarrier.arrive.expect_tx.shared.b64 _, [done], 128;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
    [box], [%d4, {2, 1}], [done];
WAIT:
mbarrier.try_wait.parity.shared.b64 %p0, [done], 0;
@!%p0 bra WAIT;
mov.u32 %r2, box; mad.lo.u32 %r2, %r1, 4, %r2; ld.shared.u32 %r3, [%r2];
ld.global.u64 %d5, [%d1+8]; ld.global.u32 %r4, [%d5]; add.u32 %r3, %r3, %r4;
mov.u32 %r5, %cluster_nctaid.x; add.u32 %r3, %r3, %r5;
mad.wide.u32 %d2, %r1, 4, %d2;
st.global.u32 [%d2], %r3;
ret;
}
"#;

fn boxes(arguments: &str) -> Output {
    copies("boxes", BOXES, arguments)
}

fn copies(name: &str, ptx: &str, arguments: &str) -> Output {
    let path = std::env::temp_dir().join(format!("kiln-sim-{name}-{}.ptx", std::process::id()));
    std::fs::write(&path, ptx).unwrap();
    let text = format!(
        r#"{{ "block": [32, 1, 1], "grid": [2, 1, 1], "cluster": [2, 1, 1],
            "buffers": [ {{ "dtype": "u32", "count": 80, "fill": "index" }},
                         {{ "dtype": "u32", "count": 1, "fill": 1000, "print": 1 }} ],
            "arguments": [ {arguments}, {{ "dtype": "u32", "count": 32, "print": 10 }} ] }}"#
    );
    job(path.to_str().unwrap(), &text, &[])
}

#[test]
fn jobs_have_tensor_maps_of_pixels() {
    let ptx = BOXES
        .replace("2d.shared::cluster.global", "3d.shared::cluster.global.im2col")
        .replace("{2, 1}], [done];", "{0, 1, 0}], [done], {1};");
    let map = r#"{ "tensor": 0, "dims": [8, 5, 2], "box": [8, 4], "im2col": [[0], [-1]] }"#;
    let rest = r#"{ "addresses": [0, 1] }"#;
    let output = copies("pixels", &ptx, &format!("{map}, {rest}"));
    let error = String::from_utf8_lossy(&output.stderr).to_string();
    assert_eq!(output.status.code(), Some(0), "{} {error}", stdout(&output));
    // Positions 1 to 3, one element on: channels of elements 2, 3, 4, then of the next image's 1.
    let want = "argument 2: 1018 1019 1020 1021 1022 1023 1024 1025 1026 1027 ..";
    assert_eq!(stdout(&output).lines().next(), Some(want));
    let output = copies("pixels", &ptx, &format!("{}, {rest}", map.replace("[8, 4]", "[8, 4, 1]")));
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr).to_string();
    assert!(error.contains("2 strides, 3 box dimensions, 3 steps for rank 3"), "{error}");
}

#[test]
fn jobs_have_clusters_tensor_maps_and_addresses() {
    let map = r#"{ "tensor": 0, "dims": [10, 8], "strides": [40], "box": [8, 4] }"#;
    let strided = map.replace("[40]", "[32]").replace("[10, 8]", "[8, 10]");
    let output = boxes(&format!(r#"{strided}, {{ "addresses": [0, 1] }}"#));
    let error = String::from_utf8_lossy(&output.stderr).to_string();
    assert_eq!(output.status.code(), Some(0), "{} {error}", stdout(&output));
    // Rows of 8 from row 1, columns from 2 on; the last two are outside. 1002 is added.
    assert_eq!(
        stdout(&output),
        "argument 2: 1012 1013 1014 1015 1016 1017 1002 1002 1020 1021 ..\nbuffer 1: 1000\n\
         no findings\n"
    );
    let refused = |arguments: &str, want: &str| {
        let output = boxes(arguments);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(String::from_utf8_lossy(&output.stderr).trim(), format!("kiln-sim: {want}"));
    };
    let rest = r#"{ "addresses": [0, 1] }"#;
    refused(
        &format!("{map}, {rest}"),
        "argument 0: failed to encode a tensor map: stride 0 of 40 bytes is not a multiple of 16 \
         below 1099511627776",
    );
    refused(
        &format!("{}, {rest}", map.replace("\"tensor\": 0", "\"tensor\": 2")),
        "argument 0: buffer 2 of 2",
    );
    refused(
        &format!("{}, {rest}", strided.replace("] }", "], \"swizzle\": 48 }")),
        "argument 0: a swizzle of 48 bytes, not 0, 32, 64 or 128",
    );
    refused(&format!(r#"{strided}, {{ "addresses": [7] }}"#), "argument 1: buffer 7 of 2");
}

/// A file that stands for the driver, in a folder of its own.
#[cfg(unix)]
fn driver(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("kiln-sim-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("libkiln_sim_driver.so");
    std::fs::write(&file, "not a library").unwrap();
    file.canonicalize().unwrap()
}

#[cfg(unix)]
#[test]
fn exec_puts_the_driver_in_front() {
    let library = driver("front");
    let folder = library.with_file_name("kiln-sim-driver");
    let say = "echo $KILN_SIM_GPU $KILN_SIM_SEED $KILN_SIM_CHECKS $KILN_SIM_ON_FINDING \
               $KILN_SIM_LOG $CUDA_FORCE_PTX_JIT; echo $LD_LIBRARY_PATH; exit 7";
    let path = library.to_str().unwrap();
    let options = ["--gpu", "h100", "--seed", "3", "--checks", "shared,barriers", "--strict"];
    let run = ["--", "sh", "-c", say];
    for _ in 0..2 {
        let output = command(&[&["exec", "--driver", path][..], &options, &run].concat());
        assert_eq!(output.status.code(), Some(7));
        let mut lines = stdout(&output).lines();
        assert_eq!(lines.next(), Some("h100 3 shared,barriers fail nothing 1"));
        assert!(lines.next().unwrap().starts_with(folder.to_str().unwrap()));
        for name in ["libcuda.so.1", "libcuda.so"] {
            assert_eq!(folder.join(name).canonicalize().unwrap(), library);
        }
        assert!(!folder.join("libcudart.so.12").exists());
    }
    // What lies beside the driver has the names of what it stands in for.
    for file in ["libkiln_sim_runtime.so", "libmcdnn.so"] {
        std::fs::write(library.with_file_name(file), "").unwrap();
    }
    command(&["exec", "--driver", path, "--", "true"]);
    for (name, file) in [
        ("libcudart.so.12", "libkiln_sim_runtime.so"),
        ("libcudart.so.13", "libkiln_sim_runtime.so"),
        ("libmcdnn.so.8", "libmcdnn.so"),
    ] {
        let target = folder.join(name).canonicalize().unwrap();
        assert_eq!(target, library.with_file_name(file));
    }
    std::fs::remove_dir_all(library.parent().unwrap()).unwrap();
}

#[cfg(unix)]
#[test]
fn exec_says_what_it_lacks() {
    let library = driver("lacks");
    let path = library.to_str().unwrap();
    let said = |arguments: &[&str]| {
        let output = command(&[&["exec"][..], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let text = said(&["--driver", "/nowhere/lib.so", "--", "true"]);
    assert!(text.contains("failed to find the driver `/nowhere/lib.so`: "), "{text}");
    assert!(text.contains("cargo build -p kiln-sim-driver"), "{text}");
    let text = said(&["--driver", path, "--", "/nowhere/program"]);
    assert!(text.contains("failed to run `/nowhere/program`: "), "{text}");
    let linked = library.with_file_name("linked");
    std::fs::write(&linked, b"\x7fELF ... //cudart.shm.%x.%x ...").unwrap();
    let text = said(&["--driver", path, "--", linked.to_str().unwrap()]);
    assert!(text.contains("NVIDIA's runtime library is linked into it"), "{text}");
    assert!(text.contains("nvcc -cudart shared"), "{text}");
    let text = said(&["--checks", "shared,everything", "--", "true"]);
    assert!(text.contains("unknown check `everything`"), "{text}");
    assert!(said(&["--driver", path]).contains("<PROGRAM>"), "{text}");
    std::fs::remove_dir_all(library.parent().unwrap()).unwrap();
}
