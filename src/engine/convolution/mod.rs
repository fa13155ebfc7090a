//! Convolution and its gradients.
//!
//! `convolution_direct` computes each element of the result as the sum over what meets in it:
//! nothing is multiplied with padding, nor with the zeros that strides put between the elements of
//! a gradient. A thread computes some neighbouring channels of an element, so that what it reads of
//! one operand serves all of them. It takes every shape, stride and type, with pointwise operations
//! in front of and behind the convolution.
//!
//! `convolution_depthwise` computes groups of one channel, which are bound by memory: a thread
//! walks along rows with the filter and the sums of the rows that it meets in registers.
//! `convolution_depthwise_filter` computes the gradients of their filters: a thread walks in the
//! same way with the sums of all taps in registers, and those of all threads are combined.

mod depthwise;
mod depthwise_filter;
mod depthwise_filter_parameters;
mod depthwise_filter_schedule;
mod depthwise_parameters;
mod direct;
mod parameters;
mod problem;
mod role;
mod walk;

pub(super) use depthwise::DepthwiseEngine;
pub(super) use depthwise_filter::DepthwiseFilterEngine;
pub(super) use direct::DirectEngine;
