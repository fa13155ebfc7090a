//! What the command line says where the driver of a GPU loses it, is older than NVRTC, or holds
//! fewer blocks than a kernel needs: on the simulated driver, which plays each.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::background;
use crate::cli::{self, PROBLEM};
use crate::harness;

/// Runs the command line on a GPU of the simulated driver; `None` where there is no such driver.
fn on_driver(arguments: &[&str], variables: &[(&str, &str)]) -> Option<Output> {
    let driver = harness::simulated_driver()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.args(arguments).args(["--device", "cuda:0"]).env("LD_PRELOAD", driver);
    command.env("CUDA_FORCE_PTX_JIT", "1").envs(harness::environment());
    Some(command.envs(variables.iter().copied()).output().unwrap())
}

#[test]
fn a_lost_device_is_exit_code_6() {
    let fault = [("KILN_SIM_FAULT", "pointwise")];
    let Some(output) = on_driver(&["run", PROBLEM, "--random", "1"], &fault) else { return };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{errors}");
    let said = "the device is lost: CUDA_ERROR_ILLEGAL_ADDRESS in `sm75_pointwise_f32_flat`";
    assert!(errors.contains(said), "{errors}");
}

#[test]
fn exec_becomes_a_program_on_the_simulated_device() {
    let Some(driver) = harness::simulated_driver() else { return };
    let say = "echo $KILN_SIM_GPU $CUDA_FORCE_PTX_JIT; ls ${LD_LIBRARY_PATH%%:*}; exit 9";
    let driver = driver.to_str().unwrap();
    let exec = |program: &[&str]| {
        cli::kiln(&[&["exec", "--gpu", "t4", "--driver", driver, "--"][..], program].concat())
    };
    let output = exec(&["sh", "-c", say]);
    assert_eq!(output.status.code(), Some(9));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("t4 1\nlibcuda.so\nlibcuda.so.1\n"), "{text}");
    let output = exec(&["/nowhere"]);
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.starts_with("kiln: failed to run `/nowhere`: No such file"), "{errors}");
}

#[test]
fn tuning_without_a_trial_that_ends_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let tune = ["tune", PROBLEM, "--settings", "3", "--cache-dir", cache.to_str().unwrap()];
    let fault = [("KILN_SIM_FAULT", "pointwise")];
    let Some(output) = on_driver(&tune, &fault) else { return };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{errors}");
    assert!(errors.contains("no configuration could be measured: "), "{errors}");
    assert!(errors.contains("the device is lost: CUDA_ERROR_ILLEGAL_ADDRESS"), "{errors}");
    // Nothing is kept as the best.
    assert!(!cache.join("tuned").exists());
}

/// Kernels of some settings trap: the process that timed them is lost, others are timed by the
/// next.
#[test]
fn tuning_goes_on_after_a_lost_trial() {
    let folder = tempfile::tempdir().unwrap();
    let [cache, templates] = ["cache", "templates"].map(|name| folder.path().join(name));
    let name = "pointwise/sm75_pointwise.cu.tera";
    let text = std::fs::read_to_string(Path::new("templates").join(name)).unwrap();
    let body = "__launch_bounds__";
    let (before, after) = text.split_once(body).unwrap();
    let (head, rest) = after.split_once(") {\n").unwrap();
    let traps = "    if (THREADS != 256) asm volatile(\"trap;\");\n";
    background::copy(Path::new("templates"), &templates);
    let text = format!("{before}{body}{head}) {{\n{traps}{rest}");
    std::fs::write(templates.join(name), text).unwrap();
    let [cache, templates] = [&cache, &templates].map(|path| path.to_str().unwrap());
    let tune = ["tune", PROBLEM, "--settings", "8", "--json"];
    let tune = [&tune[..], &["--cache-dir", cache, "--templates", templates]].concat();
    let Some(output) = on_driver(&tune, &[]) else { return };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let tried = document["parts"][0]["tried"].as_array().unwrap();
    let (timed, refused): (Vec<_>, Vec<_>) = tried.iter().partition(|of| of["us"].is_f64());
    assert!(!timed.is_empty() && refused.len() > 1, "{document}");
    for one in timed {
        assert!(one["config"].as_str().unwrap().contains("threads=256"), "{one}");
    }
    for one in refused {
        let why = one["refused"].as_str().unwrap();
        assert!(why.contains("the device is lost: "), "{why}");
    }
}

#[test]
fn an_nvrtc_that_is_newer_than_the_driver_is_refused() {
    let newer = harness::kiln().compiler().unwrap().version().0 > 12;
    let older = [("KILN_SIM_CUDA", "12.8")];
    let Some(output) = on_driver(&["doctor", "--json"], &older) else { return };
    let report = cli::json(&String::from_utf8(output.stdout).unwrap());
    let findings = report["findings"].as_array().unwrap();
    let finding = |name: &str| findings.iter().find(|of| of["name"] == name).unwrap();
    assert!(finding("driver")["text"].as_str().unwrap().ends_with(", CUDA 12.8"), "{report}");
    let nvrtc = finding("nvrtc");
    if !newer {
        eprintln!("skipped: the NVRTC here is one for this driver");
        assert_eq!(nvrtc["state"], "ok", "{report}");
        return;
    }
    let (text, fix) = (nvrtc["text"].as_str().unwrap(), nvrtc["fix"].as_str().unwrap());
    assert!(text.contains("this driver supports CUDA 12.8: install NVRTC 12 ("), "{text}");
    assert!(fix.starts_with("install NVRTC 12 ("), "{fix}");
    assert_eq!(output.status.code(), Some(1));
    // A kernel that must be compiled says the same; with a driver of CUDA 13 it is compiled.
    let folder = tempfile::tempdir().unwrap();
    let run = ["run", PROBLEM, "--random", "1", "--cache-dir", folder.path().to_str().unwrap()];
    let output = on_driver(&run, &older).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{errors}");
    assert!(errors.contains("compiles for drivers of CUDA 13 and newer"), "{errors}");
    assert!(on_driver(&run, &[]).unwrap().status.success());
}

#[test]
fn an_engine_whose_blocks_do_not_fit_gives_way_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let problem = folder.path().join("lstm.json");
    let text = r#"{"rnn": {"cell": "lstm", "input_size": 16, "hidden_size": 192, "dtype": "f16",
                   "batch": 8, "steps": 2}}"#;
    std::fs::write(&problem, text).unwrap();
    let run = ["run", problem.to_str().unwrap(), "--random", "1", "--check"];
    let printed = |output: Output| {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        (String::from_utf8(output.stdout).unwrap(), errors)
    };
    let Some(output) = on_driver(&run, &[]) else { return };
    let (usual, errors) = printed(output);
    assert!(usual.contains("rnn_cluster{"), "{usual}{errors}");
    // Where an SM is said to hold none, steps are launches of their own, whose blocks do not wait.
    let (steps, errors) = printed(on_driver(&run, &[("KILN_SIM_RESIDENT", "0")]).unwrap());
    assert!(steps.contains("rnn_step{"), "{steps}{errors}");
    for said in [
        "`sm80_rnn_f16_lstm_mma`: a cluster has 4 blocks of 256 threads and ",
        "`sm80_rnn_f16_lstm_mma`: all 4 blocks of 256 threads and ",
    ] {
        assert!(errors.contains(said), "{errors}");
    }
}

#[test]
fn setup_installs_the_nvrtc_that_fits_the_driver() {
    let Some(driver) = harness::simulated_driver() else { return };
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(driver, folder.path().join("libcuda.so.1")).unwrap();
    let setup = |arguments: &[&str], version: &str| {
        let output = Command::new("bash")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/setup.sh"))
            .args(arguments)
            .env("LD_LIBRARY_PATH", folder.path())
            .env("KILN_SIM_CUDA", version)
            .env_remove("KILN_NVRTC")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    // A toolkit, what is installed already, or what would be.
    let is = |text: &str, major: &str| {
        let of = ["libnvrtc.so.", "(", "=="].map(|before| format!("{before}{major}"));
        text.starts_with("setup: NVRTC: ") && of.iter().any(|of| text.contains(of))
    };
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: no python3, which asks the driver");
        return;
    }
    for version in ["12.8", "12.9"] {
        let text = setup(&["--print"], version);
        assert!(is(&text, "12"), "{version}: {text}");
    }
    let text = setup(&["--print", "--cuda", "12"], "13.0");
    assert!(is(&text, "12"), "{text}");
}
