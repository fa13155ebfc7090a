//! Tuning: measuring configurations of parts and partitions of graphs, and the records of the best
//! ones.

pub(in crate::plan) mod settings;
pub(in crate::plan) mod split;
pub(in crate::plan) mod winners;
