//! Debugging of kernels: dumps, captured launches, replay, overrides.

pub(in crate::plan) mod capture;
pub(in crate::plan) mod format;
pub(in crate::plan) mod memory;
pub(in crate::plan) mod overrides;
pub(in crate::plan) mod overriding;
pub(in crate::plan) mod read;
pub(in crate::plan) mod replay;
pub(in crate::plan) mod write;
