//! The worked deployment, run as its README says.

use std::process::Command;

#[test]
fn the_deployment_serves_without_a_compiler() {
    let folder = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/deploy/run.sh");
    let output = Command::new(script)
        .arg(folder.path().join("deployment"))
        .env("KILN", env!("CARGO_BIN_EXE_kiln"))
        .envs(crate::harness::environment())
        .output()
        .expect("bash is there");
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    let numbers = |what: &str| -> Vec<usize> {
        let line = text.lines().find(|line| line.contains(what)).unwrap_or_default();
        line.split(' ').filter_map(|word| word.parse().ok()).collect()
    };
    let (sound, served) = (numbers(" kernels sound"), numbers("served: "));
    // Sound, with a right canary, and too large for one.
    assert_eq!((sound[0], served[0]), (sound[1] + sound[2], served[1]), "{text}");
    // A problem or more of several kernels.
    assert!(served[0] > numbers(" problems covered")[0], "{text}");
    assert!(text.contains("no-JIT mode: kernel sm75_pointwise_"), "{text}");
}
