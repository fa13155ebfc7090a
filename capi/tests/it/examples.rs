//! The examples that newcomers copy run as they stand.

use crate::harness::{compile_file, own, succeed};

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
