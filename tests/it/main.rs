//! The integration tests, one binary: `KILN_DEVICE` chooses the device they run on.

mod harness;
mod pointwise;
