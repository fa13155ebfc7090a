//! Tests of the C interface, from C.

mod attention;
mod attributes;
mod examples;
mod facts;
mod harness;
mod headers;
mod nulls;
mod recurrent;
