//! What the command line says where the driver of a GPU loses it: on the simulated driver.

use std::process::{Command, Output};

use crate::cli::PROBLEM;
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
