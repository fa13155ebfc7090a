//! `libcuda.so` for machines without a GPU: the CUDA driver API on the simulated device.
//!
//! What drives a GPU is thus run where there is none, Kiln's own code and programs that know
//! nothing of it: contexts and threads, modules, libraries and linking, launch configurations and
//! attributes, memory of both sides, streams and events, tensor maps, capture into graphs. The
//! rules of the real driver hold (*CUDA Driver API*, 13.0): a thread needs a current context, more
//! than 48 KiB of dynamic shared memory must be asked for, a failed kernel is reported by the next
//! call that waits and by every call after it, and what a capture forbids invalidates it. Details
//! of a failure go to standard error, as the API has only codes for them. What is not there is
//! refused with `CUDA_ERROR_NOT_SUPPORTED`.
//!
//! What streams are given runs when it is given. There is one device, of the size of Kiln's target
//! `sim` unless the environment says which GPU it passes for. It assembles nothing: images are PTX,
//! by themselves or in fat binaries, cubins are refused, and the result of linking is PTX again.
//! `kiln exec` and `kiln-sim exec` put the library in place of the real driver, as does
//! `LD_PRELOAD=libkiln_sim_driver.so`; `CUDA_FORCE_PTX_JIT=1` makes Kiln hand PTX to it.

#![allow(unsafe_code, reason = "the interface of the CUDA driver")]
// Functions of a C interface, by their own names and with as many arguments as they have.
#![allow(non_snake_case, clippy::too_many_arguments)]

mod address;
mod allocation;
mod attribute;
mod capability;
mod capture;
mod conditional;
mod constant_bank;
mod context;
mod copy;
mod device;
mod entry;
mod error;
mod event;
mod fat_binary;
mod fill;
mod function;
mod gpu;
mod graph;
mod image;
mod jit;
mod launch;
mod link;
mod machine;
mod memory;
mod memset;
mod merge;
mod module;
mod objects;
mod occupancy;
mod outcome;
mod per_thread;
mod pointer;
mod pool;
mod refused;
mod settings;
mod stream;
mod task;
mod tensor_map;
mod transfer;
mod user_object;
