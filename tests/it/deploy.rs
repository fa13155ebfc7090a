//! The worked deployment, run as its README says.

use std::process::Command;

#[test]
fn the_deployment_serves_without_a_compiler() {
    let folder = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/deploy/run.sh");
    let output = Command::new(script)
        .arg(folder.path().join("deployment"))
        .env("KILN", env!("CARGO_BIN_EXE_kiln"))
        .env("KILN_CACHE_DIR", crate::harness::cache_dir())
        .output()
        .expect("bash is there");
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("3 kernels sound, 3 canaries right"), "{text}");
    assert!(text.contains("served: 3 of 3 kernels from the pack"), "{text}");
    assert!(text.contains("no-JIT mode: kernel sm75_pointwise_"), "{text}");
}
