//! Tests of the C interface, from C.

mod attributes;
mod examples;
mod facts;
mod harness;
mod headers;
mod nulls;
mod recurrent;
