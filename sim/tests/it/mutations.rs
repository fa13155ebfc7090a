//! Bugs planted in correct kernels, one at a time: every one is found, in the PTX of both
//! compilers, by a finding of the right kind on the right CUDA line.
//!
//! `tests/reports/mutations.txt` lists them with what was found; `BLESS=1 cargo test` writes it
//! anew, to be reviewed.

mod campaign;
mod edit;
mod memory;
mod ordering;
mod waiting;
