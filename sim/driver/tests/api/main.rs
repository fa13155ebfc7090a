//! The driver as a stranger has it: its functions by name, called with what C passes.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]
#![allow(unsafe_code, reason = "the interface of the CUDA driver")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "each calls the driver as its document says")]

mod code;
mod conditional;
mod contexts;
mod driver;
mod entries;
mod fat_binaries;
mod launches;
mod linking;
mod memory;
mod modules;
mod pools;
mod streams;
mod tensor_maps;
