//! `libmcdnn.so`: the interface of cuDNN 8 under the names of mcDNN, on Kiln.

#![allow(unsafe_code, reason = "the interface of a C library")]
// Functions of a C interface, by their own names and with as many arguments as they have.
#![allow(non_snake_case, non_upper_case_globals, clippy::too_many_arguments)]

mod algorithm;
mod attention;
mod backend;
mod call;
pub mod chapters;
mod ctc;
pub mod declare;
pub mod documentation;
mod dropout;
mod extensions;
mod facts;
mod fill;
mod filter;
mod handle;
pub mod header;
mod kept;
mod log;
mod memory;
mod object;
mod onednn;
mod pointer;
mod rnn;
mod status;
mod tensor;
mod values;

pub use backend::{Attribute, DescriptorType, Need, attributes};

/// Bytes of `mcdnnDebug_t`.
pub const DEBUG_BYTES: usize = size_of::<log::Debug>();
