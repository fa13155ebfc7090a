//! The environment of planning: configuration, kernel store, engine selection, counters.

pub(in crate::plan) mod config;
pub(in crate::plan) mod kernel_store;
pub(in crate::plan) mod metrics;
pub(in crate::plan) mod nvrtc;
pub(in crate::plan) mod planner;
pub(in crate::plan) mod report;
pub(in crate::plan) mod resolved;
pub(in crate::plan) mod selection;
pub(in crate::plan) mod span;
pub(in crate::plan) mod step_down;
pub(in crate::plan) mod variables;
