//! Resampling and its gradients.
//!
//! `resample_direct` computes each element of the result alone. Forward, a thread reads the taps of
//! the windows of some neighbouring channels, or columns where those are neighbours in memory;
//! neighbouring windows overlap in L1. A gradient gathers: each element of the image sums the
//! gradients of the outputs whose windows hold it, in their order, so that nothing is added
//! atomically and every run gives the same bits. Positions are whole numbers of the least fraction
//! of an element that strides and paddings have in common.

mod direct;
mod line;
mod parameters;
mod problem;

pub(super) use direct::DirectEngine;
