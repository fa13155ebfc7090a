//! Kernels loaded on a GPU, and their launches.

#![expect(unsafe_code, reason = "the CUDA driver is a C library")]

use std::ptr;
use std::sync::Arc;

use cudarc::driver::{result, sys};
use tracing::trace;

use crate::device::attribute::{attribute, config};
use crate::device::captured::Captured;
use crate::device::context::{LAUNCH, Primary, RELEASE};
use crate::device::driver::{Launch, Launchable};
use crate::device::occupancy::Occupancy;
use crate::device::parameters::Parameters;
use crate::error::Result;

/// A loaded module, which retains its context.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) primary: Arc<Primary>,
    pub(super) module: sys::CUmodule,
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: loaded once, unloaded once; the driver waits for running kernels.
        let _ =
            self.primary.call(RELEASE).map(|_call| unsafe { result::module::unload(self.module) });
    }
}

/// A kernel of a loaded module.
#[derive(Debug)]
pub(super) struct CudaKernel {
    pub(super) loaded: Module,
    pub(super) function: sys::CUfunction,
    pub(super) parameters: Parameters,
    pub(super) name: Arc<str>,
    pub(super) sm_count: u32,
    pub(super) occupancy: Occupancy,
    pub(super) waits_for_grids: bool,
}

// SAFETY: module and function handles may be used on any thread on which their context is current.
unsafe impl Send for CudaKernel {}
// SAFETY: as above.
unsafe impl Sync for CudaKernel {}

impl Launchable for CudaKernel {
    fn check(&self, launch: &Launch) -> Result<()> {
        let call = self.loaded.primary.call("count the blocks that the GPU holds")?;
        let failed = |error| call.failed(error);
        self.occupancy.check(&self.name, self.function, self.sm_count, launch, failed)
    }

    fn waits_for_grids(&self) -> bool {
        self.waits_for_grids
    }

    fn launch(&self, launch: &Launch, arguments: &[u64], stream: u64) -> Result<()> {
        let _call = self.loaded.primary.call(LAUNCH)?;
        if launch.cooperative {
            self.check(launch)?;
        }
        let mut attribute = attribute(launch);
        let config = sys::CUlaunchConfig {
            hStream: stream as sys::CUstream,
            attrs: attribute.as_mut().map_or(ptr::null_mut(), ptr::from_mut),
            numAttrs: u32::from(attribute.is_some()),
            ..config(launch)
        };
        let health = &self.loaded.primary.health;
        match Captured::of(stream) {
            Ok(Some(capture)) => health.capturing(&self.name, capture.id),
            _ => health.launching(&self.name, stream),
        }
        trace!("launch {}", self.name);
        // SAFETY: the words hold the kernel's parameters in order; the driver copies them, the
        // configuration and the attribute before it returns. Addresses among them were checked
        // against the plan's tensors.
        let status = self.parameters.pass(arguments, |values, extra| unsafe {
            sys::cuLaunchKernelEx(&config, self.function, values, extra)
        });
        status.result().map_err(|error| health.failed_to_launch(&self.name, error))
    }
}
