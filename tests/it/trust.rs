//! What decides which code is loaded: neither the folder a program happens to run in, nor where it
//! was built, nor the environment of someone with fewer rights.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::cli;

/// The tool, somewhere else than where it was built.
fn copied(folder: &Path) -> PathBuf {
    fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    let tool = folder.join("kiln");
    fs::copy(env!("CARGO_BIN_EXE_kiln"), &tool).unwrap();
    tool
}

/// A library where older versions would have found one.
fn planted(folder: &Path) -> PathBuf {
    let libraries = folder.join("third_party/nvrtc/nvidia/cu13/lib");
    fs::create_dir_all(&libraries).unwrap();
    fs::write(libraries.join("libnvrtc.so.13"), b"not a library").unwrap();
    libraries
}

fn doctor(command: &mut Command) -> Value {
    let output = command.args(["doctor", "--json", "--device", "sim"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    cli::json(&text)
}

fn finding<'a>(report: &'a Value, name: &str) -> &'a Value {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["name"] == name).unwrap()
}

#[test]
fn no_library_comes_from_the_working_folder_or_the_build() {
    let folder = tempfile::tempdir().unwrap();
    let tool = copied(folder.path());
    planted(folder.path());
    let home = folder.path().join("home");
    for variables in [vec![], vec![("CUDA_HOME", "third_party/nvrtc/nvidia/cu13")]] {
        let report = doctor(
            Command::new(&tool)
                .current_dir(folder.path())
                .env_clear()
                .env("HOME", &home)
                .env("LD_LIBRARY_PATH", ".:third_party/nvrtc/nvidia/cu13/lib:")
                .envs(variables),
        );
        let text = report.to_string();
        assert!(!text.contains("third_party"), "{report:#}");
        assert!(!text.contains(env!("CARGO_MANIFEST_DIR")), "{report:#}");
        let places = report["nvrtc_places"].as_array().unwrap();
        assert!(places.iter().any(|place| place["kind"] == "toolkit"), "{report:#}");
        let absolute = |place: &Value| place["folder"].as_str().unwrap().starts_with('/');
        assert!(places.iter().all(absolute), "{report:#}");
    }
}

/// A checkout is known by the variable that cargo sets, or by its `target` folder.
#[test]
fn a_checkout_finds_what_setup_installed() {
    let folder = tempfile::tempdir().unwrap();
    let tool = copied(folder.path());
    let libraries = planted(folder.path());
    let places = |command: &mut Command| {
        let report = doctor(command.env_clear().env("HOME", folder.path().join("home")));
        let of = |place: &Value| (place["kind"] == "checkout").then(|| place["folder"].clone());
        let places = report["nvrtc_places"].as_array().unwrap().iter().filter_map(of);
        places.map(|folder| PathBuf::from(folder.as_str().unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(places(&mut Command::new(&tool)), [] as [PathBuf; 0]);
    let built = folder.path().join("target/debug/kiln");
    fs::create_dir_all(built.parent().unwrap()).unwrap();
    fs::rename(&tool, &built).unwrap();
    assert_eq!(places(&mut Command::new(&built)), [] as [PathBuf; 0], "no Cargo.toml");
    fs::write(folder.path().join("Cargo.toml"), "").unwrap();
    // NVRTC 13, or 12 for an older driver.
    let older = folder.path().join("third_party/nvrtc/nvidia/cuda_nvrtc/lib");
    assert_eq!(places(&mut Command::new(&built)), [libraries, older]);
}

/// Only root can make a program of another user's; the test says nothing elsewhere.
#[test]
fn privileged_programs_see_no_variables() {
    let folder = tempfile::tempdir().unwrap();
    let tool = copied(folder.path());
    let (owner, caller) = (65_533, 65_534);
    if chown(&tool, Some(owner), Some(owner)).is_err() {
        println!("skipped: this user cannot give files away");
        return;
    }
    let trace = folder.path().join("open/trace.json");
    fs::create_dir(trace.parent().unwrap()).unwrap();
    fs::set_permissions(trace.parent().unwrap(), Permissions::from_mode(0o777)).unwrap();
    let run = |mode: u32| {
        fs::set_permissions(&tool, Permissions::from_mode(mode)).unwrap();
        let _ = fs::remove_file(&trace);
        let report = doctor(
            Command::new(&tool)
                .uid(caller)
                .gid(caller)
                .current_dir("/")
                .env_clear()
                .env("HOME", folder.path())
                .env("CUDA_HOME", "/planted")
                .env("KILN_NVRTC", "/planted/nvrtc")
                .env("KILN_TRACE", &trace),
        );
        (report, trace.exists())
    };
    let (plain, traced) = run(0o755);
    assert!(traced && plain.to_string().contains("/planted"), "{plain:#}");
    assert!(finding(&plain, "nvrtc")["text"].as_str().unwrap().contains("/planted/nvrtc"));
    let (privileged, traced) = run(0o4755);
    assert!(!traced && !privileged.to_string().contains("/planted"), "{privileged:#}");
    assert_eq!(finding(&privileged, "cache")["state"], "none", "HOME is not believed");
}
