//! A PTX machine: runs CUDA kernels without a GPU, and checks them.

#![warn(missing_docs)]

mod ast;
mod block;
mod colour;
mod decode;
mod device;
mod draft;
mod error;
mod execute;
mod half;
mod lanes;
mod launch;
mod lex;
mod memory;
mod module;
mod op;
mod parse;
mod parse_body;
mod registers;
mod rounding;
mod types;
mod warp;

pub use device::{Device, DeviceConfig};
pub use error::{Error, ErrorKind, Place};
pub use launch::{Launch, Report};
pub use module::{Kernel, Module, Param};
