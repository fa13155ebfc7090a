//! The examples that newcomers copy run as they stand.

use crate::harness::{compile_file, own, run_on, succeed, succeeded};

fn run(name: &str) -> String {
    let source = own().join("../examples/c").join(format!("{name}.c"));
    succeed(&compile_file(name, &source), &[])
}

#[test]
fn a_network_learns() {
    let output = run("rnn_training");
    assert!(output.contains("bytes of weights"), "{output}");
    assert_eq!(output.matches("loss").count(), 4, "{output}");
}

#[test]
fn a_convolution_by_the_backend() {
    assert!(run("convolution").contains("0 of 288 results differ"));
}

#[test]
fn beams_attend_step_by_step() {
    assert!(run("attention_beams").contains("0 of 192 results differ"));
    // Without CUDA, on a device that the environment names.
    let program = compile_file("beams", &own().join("../examples/c/attention_beams.c"));
    let output = succeeded(run_on(Some("sim:t4"), &program, &[]), &[]);
    assert!(output.contains("0 of 192 results differ"), "{output}");
}
