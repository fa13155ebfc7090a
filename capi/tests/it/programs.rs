//! Programs that check themselves.

use crate::harness::{compile, succeed};

#[test]
fn six_threads_with_a_handle_each() {
    assert_eq!(succeed(&compile("threads"), &[]), "18 networks\n");
}

#[test]
fn a_pass_is_captured_into_a_graph() {
    assert_eq!(succeed(&compile("capture"), &[]), "replayed\n");
}
