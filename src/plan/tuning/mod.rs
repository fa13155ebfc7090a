//! Tuning: settings of parts and splits of graphs, measured, and what was found.

pub(in crate::plan) mod settings;
pub(in crate::plan) mod split;
pub(in crate::plan) mod winners;
