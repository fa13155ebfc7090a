//! `libcuda.so` for machines without a GPU: the functions of the CUDA driver API that Kiln calls,
//! on the simulated device, with every check on.
//!
//! What drives a GPU is thus run where there is none: loading of the library, contexts and threads,
//! modules, launch configurations and attributes, tensor maps, events, capture into graphs. The
//! rules of the real driver hold (*CUDA Driver API*, 13.0): a thread needs a current context, more
//! than 48 KiB of dynamic shared memory must be asked for, a failed kernel is reported by the next
//! call that waits and by every call after it, and what a capture forbids invalidates it. Details
//! of a failure go to standard error, as the API has only codes for them.
//!
//! One device, of the size of Kiln's target `sim`. It assembles nothing: images are PTX, cubins are
//! refused. `LD_PRELOAD=libkiln_sim_driver.so` puts it in place of the real driver, and
//! `CUDA_FORCE_PTX_JIT=1` makes Kiln hand PTX to it.

#![allow(unsafe_code, reason = "the interface of the CUDA driver")]
// Functions of a C interface: what their pointers must be valid for is what the API says of them.
#![allow(non_snake_case, clippy::missing_safety_doc)]

mod device;
mod launch;
mod machine;
mod module;
mod stream;
mod tensor_map;
