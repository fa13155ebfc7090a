//! `libcudart.so` for machines without a GPU: the CUDA runtime API (*CUDA Runtime API*, 12.9 and
//! 13.0) over documented functions of the driver API.
//!
//! NVIDIA's own runtime asks the driver for tables that are in no document, so that it does not
//! run on a driver of others. Programs that are linked with it as a shared library run with this
//! one in its place: it stands in for `libcudart.so.12` and `libcudart.so.13`. It is a thin layer
//! on whatever `libcuda.so.1` the process has, which on a machine without a GPU is the one in
//! `sim/driver`; all that is known of memory, streams and kernels is there. What is kept here:
//! which context a thread works in, its last error, the configuration of the launch that follows,
//! and what the program has registered.
//!
//! Arrays, textures, surfaces, graphs that are built node by node, memory shared between
//! processes, and other interfaces to graphics are refused with `cudaErrorNotSupported`, by name.

#![allow(unsafe_code, reason = "the interface of the CUDA runtime")]
// Functions of a C interface, by their own names and with as many arguments as they have.
#![allow(non_snake_case, clippy::too_many_arguments)]

mod code;
mod context;
mod copy;
mod device;
mod driver;
mod entry;
mod error;
mod event;
mod function;
mod graph;
mod last;
mod launch;
mod layout;
mod library;
mod memory;
mod memset;
mod own_stream;
mod per_thread;
mod place;
mod pool;
mod properties;
mod refused;
mod registry;
mod stream;
mod symbol;
mod versioned;
