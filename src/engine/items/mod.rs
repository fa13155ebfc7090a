//! Kernels in which a thread computes some neighbouring elements of a result, its items: how the
//! tensors lie along the result's dimensions, what is computed in front of an operation and behind
//! it, and how a thread's items are loaded and stored.
//!
//! Shared by the engines that compute each element alone, `convolution_direct` and
//! `resample_direct`.

mod axes;
mod chain;
mod fusion;
mod item;
mod kernel;
mod layout;

pub(super) use axes::{Axes, Axis};
pub(super) use chain::Operand;
pub(super) use fusion::{Fusion, check_parameters, distinct, offset_max, only, passed};
pub(super) use item::{Item, blocks};
pub(super) use kernel::{Kernel, Point, WIDE_FROM, launch};
pub(super) use layout::{Context, Load, Output};
