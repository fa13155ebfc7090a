//! Tests of the C interface, from C.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod attention;
mod attributes;
mod ctc;
mod examples;
mod facts;
mod harness;
mod headers;
mod integers;
mod nulls;
mod onednn;
#[path = "../../../tests/it/onednn_cases.rs"]
mod onednn_cases;
#[path = "../../../tests/it/onednn_integer_lstm.rs"]
mod onednn_integer_lstm;
mod programs;
mod recurrent;
mod sequences;
mod sums;
