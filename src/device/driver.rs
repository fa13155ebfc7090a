//! The device abstraction between public handles and the implementations.

use std::fmt;
use std::sync::Arc;

use crate::compile::Image;
use crate::device::counts::{Counters, Finding};
use crate::error::{Error, Result};
use crate::kernel::TensorMap;
use crate::target::Target;

/// Launch configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Launch {
    /// Blocks along x.
    pub grid: u32,
    /// Threads per block along x.
    pub threads: u32,
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// Whether all blocks must be co-resident.
    pub cooperative: bool,
    /// Whether it may begin before the launch before it has ended, for which its kernel waits
    /// (programmatic dependent launch, sm_90 and later).
    pub programmatic: bool,
    /// Registers per thread, for the simulated device; 0 where they are not known.
    pub registers: u32,
}

/// Checks and counters of the simulated device; neither has a cost when off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SimOptions {
    /// Fail launches that read uninitialised memory, have data races or diverge at a barrier.
    pub sanitize: bool,
    /// Count executed instructions and memory traffic.
    pub count: bool,
    /// The order of warps and of completions of asynchronous copies.
    pub seed: u64,
    /// Approximate functions and tensor cores have their largest known errors.
    pub worst: bool,
    /// Clusters of a launch that are run, if not all.
    pub sample: Option<u32>,
    /// Work of different streams that nothing orders runs late and in an order drawn with `seed`.
    pub late: bool,
}

/// What a conditional node of a CUDA graph does with its bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conditional {
    /// The body is executed as long as the condition is not 0.
    While,
    /// The first of two bodies is executed if the condition is not 0, else the second.
    If,
}

/// A conditional node whose bodies are being captured.
#[derive(Debug)]
pub(crate) struct Branching {
    /// What decides on the node.
    pub(crate) condition: u64,
    /// Streams that are captured into its bodies.
    pub(crate) streams: Vec<u64>,
}

/// A device. Addresses and stream handles are defined by the implementation; stream 0 always
/// exists.
pub(crate) trait Driver: fmt::Debug + Send + Sync {
    fn target(&self) -> &Target;
    fn alloc(&self, bytes: u64) -> Result<u64>;
    fn free(&self, address: u64);
    fn write(&self, address: u64, bytes: &[u8], stream: u64) -> Result<()>;
    fn read(&self, address: u64, bytes: &mut [u8], stream: u64) -> Result<()>;
    fn stream_create(&self) -> Result<u64>;
    /// Creates a stream that is not ordered with the default stream.
    fn lane_create(&self) -> Result<u64>;
    fn stream_destroy(&self, stream: u64);
    fn synchronize(&self, stream: u64) -> Result<()>;
    /// Records an event after all work queued on the stream.
    fn event_record(&self, stream: u64) -> Result<u64>;
    fn event_destroy(&self, event: u64);
    /// Creates an event that orders streams and has no time.
    fn mark_create(&self) -> Result<u64>;
    /// Moves such an event behind all work queued on a stream.
    fn mark(&self, event: u64, stream: u64) -> Result<()>;
    /// Orders what a stream is given from now on behind what is before an event now.
    fn wait(&self, stream: u64, event: u64) -> Result<()>;
    /// Milliseconds between two recorded events; waits for the later one.
    fn event_elapsed_ms(&self, start: u64, end: u64) -> Result<f64>;
    /// CUDA version that the driver of a GPU supports: major and minor.
    fn cuda_version(&self) -> Option<(i32, i32)> {
        None
    }
    /// Counters of the last launch, if the device supports them.
    fn counters(&self) -> Option<Counters> {
        None
    }
    /// Identifies the CUDA graph into which a stream is being captured, if any.
    fn capture(&self, _stream: u64) -> Option<u64> {
        None
    }
    /// Loads what conditional nodes need, which must not be done during a capture.
    fn prepare_conditionals(&self) -> Result<()> {
        Ok(())
    }
    /// Adds a conditional node to the CUDA graph that a stream is being captured into, on which the
    /// byte at an address decides.
    fn branch(&self, _stream: u64, _kind: Conditional, _flag: u64) -> Result<Branching> {
        Err(Error::not_supported("the device has no conditional nodes"))
    }
    /// Lets the byte at an address decide again.
    fn decide(&self, _stream: u64, _condition: u64, _flag: u64) -> Result<()> {
        Err(Error::not_supported("the device has no conditional nodes"))
    }
    /// Ends the capture of a body.
    fn branch_end(&self, _stream: u64) -> Result<()> {
        Err(Error::not_supported("the device has no conditional nodes"))
    }
    /// Whether a live stream is of the device's context.
    fn owns(&self, _stream: u64) -> Result<bool> {
        Ok(true)
    }
    /// Called on background threads that load kernels, whose calls must not interfere with captures
    /// on other threads.
    fn enter_background(&self) -> Result<()> {
        Ok(())
    }
    /// Makes the device's context current on this thread, so that the calls up to
    /// [`Driver::leave`] need not. Returns whether another one was current.
    fn enter(&self) -> Result<bool> {
        Ok(false)
    }
    /// Makes the context current again that was before [`Driver::enter`] returned `true`.
    fn leave(&self) {}
    /// Copies on the device, ordered in a stream as a kernel is; waits for nothing.
    fn copy(&self, from: u64, to: u64, bytes: u64, stream: u64) -> Result<()>;
    /// Encodes the 128 bytes of a tensor map for a tensor at an address.
    fn encode(&self, map: &TensorMap, address: u64) -> Result<[u64; MAP_WORDS]>;
    /// Sanitizer findings of the last launch, if there is a sanitizer.
    fn findings(&self) -> Vec<Finding> {
        Vec::new()
    }
    /// Loads an image and looks up a kernel.
    fn load(
        &self,
        image: &Image,
        kernel: KernelName<'_>,
        shared_bytes: u32,
    ) -> Result<Arc<dyn Launchable>>;
}

/// What a kernel is called.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KernelName<'a> {
    /// Stem of its source, for messages.
    pub stem: &'a str,
    /// Its function in an image.
    pub entry: &'a str,
}

/// Size of a tensor map in 8-byte words; as a parameter it is aligned to 8 words.
pub(crate) const MAP_WORDS: usize = 16;

/// A loaded kernel. `arguments` are its parameters in memory layout.
pub(crate) trait Launchable: fmt::Debug + Send + Sync {
    /// Checks that the device holds the blocks that wait for each other.
    ///
    /// # Errors
    /// `NotSupported` if it does not.
    fn check(&self, _launch: &Launch) -> Result<()> {
        Ok(())
    }
    /// Whether it waits itself for the launches before it (`griddepcontrol.wait`).
    fn waits_for_grids(&self) -> bool {
        false
    }
    fn launch(&self, launch: &Launch, arguments: &[u64], stream: u64) -> Result<()>;
}
