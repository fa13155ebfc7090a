//! What a device can do: the trait between the handles that users hold and what runs kernels.

use std::fmt;
use std::sync::Arc;

use crate::compile::Image;
use crate::device::counts::{Counters, Finding};
use crate::error::Result;
use crate::kernel::TensorMap;
use crate::target::Target;

/// Shape of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Launch {
    /// Blocks along x.
    pub grid: u32,
    /// Threads per block along x.
    pub threads: u32,
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// All blocks must be resident together.
    pub cooperative: bool,
}

/// What the simulated device looks for and counts; neither costs anything when off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SimOptions {
    /// Fail a launch that reads what nobody wrote, races, or divides a barrier.
    pub sanitize: bool,
    /// Count what launches execute.
    pub count: bool,
}

/// What a device can do. Addresses and stream handles are the implementation's own numbers; stream
/// 0 always exists.
pub(crate) trait Driver: fmt::Debug + Send + Sync {
    fn target(&self) -> &Target;
    fn alloc(&self, bytes: u64) -> Result<u64>;
    fn free(&self, address: u64);
    fn write(&self, address: u64, bytes: &[u8], stream: u64) -> Result<()>;
    fn read(&self, address: u64, bytes: &mut [u8], stream: u64) -> Result<()>;
    fn stream_create(&self) -> Result<u64>;
    fn stream_destroy(&self, stream: u64);
    fn synchronize(&self, stream: u64) -> Result<()>;
    /// An event recorded after everything the stream holds so far.
    fn event_record(&self, stream: u64) -> Result<u64>;
    fn event_destroy(&self, event: u64);
    /// Milliseconds between two recorded events; waits for the later one.
    fn event_elapsed_ms(&self, start: u64, end: u64) -> Result<f64>;
    /// What the last launch counted, where the device counts.
    fn counters(&self) -> Option<Counters> {
        None
    }
    /// Identifies the CUDA graph that a stream is being captured into; `None` when it is not.
    fn capture(&self, _stream: u64) -> Option<u64> {
        None
    }
    /// Called on a thread that loads kernels while others work: its calls must not disturb what
    /// other threads capture.
    fn enter_background(&self) -> Result<()> {
        Ok(())
    }
    /// The 128 bytes of a tensor map whose tensor begins at an address.
    fn encode(&self, map: &TensorMap, address: u64) -> Result<[u64; MAP_WORDS]>;
    /// What the sanitizer found in the last launch, where there is one.
    fn findings(&self) -> Vec<Finding> {
        Vec::new()
    }
    /// Loads an image and finds the kernel `entry` in it.
    fn load(&self, image: &Image, entry: &str, shared_bytes: u32) -> Result<Arc<dyn Launchable>>;
}

/// The size of a tensor map in words of 8 bytes; as a parameter it begins at a multiple of 8.
pub(crate) const MAP_WORDS: usize = 16;

/// A loaded kernel. `arguments` holds its parameters as they lie in memory, in order.
pub(crate) trait Launchable: fmt::Debug + Send + Sync {
    fn launch(&self, launch: &Launch, arguments: &[u64], stream: u64) -> Result<()>;
}
