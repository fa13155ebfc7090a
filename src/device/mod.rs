//! Devices: NVIDIA GPUs, the simulated device, and the null device.
//!
//! The trait `Driver` has three implementations, which load the same image and run the same launch.
//! Users hold the handles [`Device`], [`Stream`], [`Buffer`] and [`Event`]. This module knows
//! images and addresses; it must never know graphs, plans or the cache.
//!
//! A call leaves the context that is current on its thread as it was: other libraries have their
//! own.
//!
//! After a kernel has faulted on a GPU, every function here that returns a `Result` gives an error
//! of kind [`DeviceLost`](crate::ErrorKind::DeviceLost), whatever it was asked for.

#![expect(unsafe_code, reason = "another library's stream is a number that nobody can check")]

mod attribute;
mod buffer;
mod captured;
mod conditional;
mod context;
mod counts;
mod cuda;
mod cuda_kernel;
mod driver;
mod health;
mod null;
mod occupancy;
mod parameters;
#[cfg(feature = "sim")]
mod queues;
mod reports;
#[cfg(feature = "sim")]
mod sim;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

pub(crate) use buffer::Mark;
pub use buffer::{Buffer, Event, Stream};
#[cfg(feature = "sim")]
pub use counts::{Bound, Estimate, InstructionClass};
pub use counts::{Counters, Finding};
pub(crate) use driver::{Conditional, Driver, KernelName, Launchable, MAP_WORDS};
pub use driver::{Launch, SimOptions};
pub(crate) use reports::{REPORT_BYTES, ReportSite, Waited};

use crate::compile::Image;
use crate::device::reports::Reports;
use crate::error::{Error, Result};
use crate::kernel::TensorMap;
use crate::target::Target;

/// Selection of the device to open.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum DeviceChoice {
    /// GPU 0 if there is one, otherwise the simulator.
    #[default]
    Auto,
    /// The simulated device with a target of the table ([`Target::named`]).
    Sim(String),
    /// The GPU with this index.
    Cuda(u32),
    /// The null device with a target of the table; launches nothing, for measuring host overhead.
    Null(String),
}

impl FromStr for DeviceChoice {
    type Err = Error;

    /// Parses `auto`, `sim`, `sim:TARGET`, `cuda`, `cuda:N`, `null` or `null:TARGET`.
    fn from_str(text: &str) -> Result<Self> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let named = |default: &str| if rest.is_empty() { default } else { rest }.to_owned();
        let choice = match kind {
            "auto" if rest.is_empty() => Some(DeviceChoice::Auto),
            "sim" => Some(DeviceChoice::Sim(named("sim"))),
            "null" => Some(DeviceChoice::Null(named("sim"))),
            "cuda" => named("0").parse().ok().map(DeviceChoice::Cuda),
            _ => None,
        };
        choice.ok_or_else(|| {
            Error::bad_param(format!(
                "unknown device `{text}`: expected auto, sim[:TARGET], cuda[:N] or null[:TARGET]"
            ))
        })
    }
}

impl fmt::Display for DeviceChoice {
    /// As it is parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Sim(target) => write!(f, "sim:{target}"),
            DeviceChoice::Cuda(index) => write!(f, "cuda:{index}"),
            DeviceChoice::Null(target) => write!(f, "null:{target}"),
        }
    }
}

/// An open device; clones share it.
#[derive(Debug, Clone)]
pub struct Device {
    driver: Arc<dyn Driver>,
    kind: &'static str,
    reports: Arc<Reports>,
}

/// The time for which a device's context is current on a thread.
#[must_use]
pub(crate) struct Entered<'a> {
    /// Where another context was current before.
    left: Option<&'a dyn Driver>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(driver) = self.left {
            driver.leave();
        }
    }
}

impl Device {
    /// Opens a device; the options apply to the simulated device only.
    ///
    /// # Errors
    /// `BadParam` for an unknown target; as [`Device::cuda`].
    pub fn open(choice: &DeviceChoice, options: SimOptions) -> Result<Device> {
        match choice {
            DeviceChoice::Auto if cuda::count().is_ok_and(|count| count > 0) => Device::cuda(0),
            DeviceChoice::Auto => Device::simulated(Target::sim(), options),
            DeviceChoice::Sim(name) => Device::simulated(Target::named(name)?, options),
            DeviceChoice::Cuda(index) => Device::cuda(*index),
            DeviceChoice::Null(name) => Target::named(name).map(Device::null),
        }
    }

    fn of(driver: Arc<dyn Driver>, kind: &'static str) -> Device {
        Device { driver, kind, reports: Arc::default() }
    }

    #[cfg(feature = "sim")]
    fn simulated(target: Target, options: SimOptions) -> Result<Device> {
        Ok(Device::sim(target, options))
    }

    #[cfg(not(feature = "sim"))]
    fn simulated(target: Target, _options: SimOptions) -> Result<Device> {
        let name = target.name;
        Err(Error::not_supported(format!(
            "failed to open the simulated device as `{name}`: built without the cargo feature `sim`"
        )))
    }

    /// The simulated device, with the limits of `target`.
    #[cfg(feature = "sim")]
    pub fn sim(target: Target, options: SimOptions) -> Device {
        Device::of(Arc::new(sim::SimDriver::new(target, options)), "sim")
    }

    /// The GPU with this index.
    ///
    /// # Errors
    /// `Driver` when there is no CUDA driver, `BadParam` when there is no such GPU, `ArchMismatch`
    /// when it is older than Turing (sm_75).
    pub fn cuda(index: u32) -> Result<Device> {
        Ok(Device::of(Arc::new(cuda::CudaDriver::open(index)?), "cuda"))
    }

    /// The null device, which accepts everything and launches nothing; its buffers have no memory.
    pub fn null(target: Target) -> Device {
        Device::of(Arc::new(null::NullDriver::new(target)), "null")
    }

    /// The number of GPUs.
    ///
    /// # Errors
    /// `Driver` when there is no CUDA driver.
    pub fn cuda_count() -> Result<u32> {
        cuda::count()
    }

    /// The GPU whose context is current on this thread, if there is one.
    ///
    /// # Errors
    /// `Driver` when there is no CUDA driver.
    pub fn cuda_current() -> Result<Option<u32>> {
        cuda::current()
    }

    /// CUDA version that the GPU's driver supports, major and minor; `None` of a device without
    /// one.
    pub fn cuda_version(&self) -> Option<(i32, i32)> {
        self.driver.cuda_version()
    }

    /// Counters of the last launch, printable as a table; `None` if counting is off.
    pub fn counters(&self) -> Option<Counters> {
        self.driver.counters()
    }

    /// Sanitizer findings of the last launch; empty if the sanitizer is off.
    pub fn findings(&self) -> Vec<Finding> {
        self.driver.findings()
    }

    /// The target of the device.
    pub fn target(&self) -> &Target {
        self.driver.target()
    }

    /// `sim`, `cuda` or `null`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Allocates a buffer of uninitialised memory.
    ///
    /// # Errors
    /// `OutOfMemory` when memory is exhausted.
    pub fn alloc(&self, bytes: u64) -> Result<Buffer> {
        Buffer::new(self.driver.clone(), self.reports.clone(), bytes)
    }

    /// Allocates a buffer and fills it from the host.
    ///
    /// # Errors
    /// `OutOfMemory` when memory is exhausted, `Driver` when the copy fails.
    pub fn upload(&self, bytes: &[u8]) -> Result<Buffer> {
        let buffer = self.alloc(bytes.len() as u64)?;
        buffer.write(0, bytes)?;
        Ok(buffer)
    }

    /// Creates a stream; work on different streams may overlap.
    ///
    /// # Errors
    /// `Driver` when the stream cannot be created.
    pub fn stream(&self) -> Result<Stream> {
        Stream::new(self.driver.clone(), self.reports.clone())
    }

    /// Creates a stream that marks alone order with others, the default stream among them.
    ///
    /// # Errors
    /// `Driver` when the stream cannot be created.
    pub(crate) fn lane(&self) -> Result<Stream> {
        Stream::lane(self.driver.clone(), self.reports.clone())
    }

    /// Creates a mark, which is nowhere yet: nothing waits for it.
    ///
    /// # Errors
    /// `Driver` when it cannot be created.
    pub(crate) fn mark(&self) -> Result<Mark> {
        Mark::new(self.driver.clone())
    }

    /// Wraps a foreign stream by its native handle (a `CUstream` on a GPU), for launching into
    /// streams of another library or into one that is being captured into a CUDA graph, which needs
    /// the plan as long as it is replayed. The stream is not destroyed on drop.
    ///
    /// ```no_run
    /// # use kiln::device::Stream;
    /// # use kiln::{ExecutionPlan, Kiln, Result, VariantPack};
    /// /// `stream` is `torch.cuda.current_stream().cuda_stream`.
    /// fn run(kiln: &Kiln, plan: &ExecutionPlan, pack: &VariantPack, stream: u64) -> Result<()> {
    ///     // SAFETY: torch keeps its current stream for as long as this call lasts.
    ///     let stream = unsafe { kiln.device().external_stream(stream) };
    ///     plan.execute(&stream, pack)
    /// }
    /// ```
    ///
    /// # Safety
    /// The handle must be a live stream of this device as long as the result is in use; the driver
    /// does not check it.
    pub unsafe fn external_stream(&self, handle: u64) -> Stream {
        Stream::external(self.driver.clone(), self.reports.clone(), handle)
    }

    /// Whether a foreign stream is one of this device's context, in which alone kernels can be
    /// launched.
    ///
    /// # Errors
    /// `Driver` when the driver does not know it.
    ///
    /// # Safety
    /// The handle must be a live stream of any device.
    pub unsafe fn owns_stream(&self, handle: u64) -> Result<bool> {
        self.driver.owns(handle)
    }

    /// The default stream of the device.
    pub fn default_stream(&self) -> Stream {
        Stream::external(self.driver.clone(), self.reports.clone(), 0)
    }

    /// The null device with a capture that contains all streams while its number is not 0.
    #[cfg(test)]
    pub(crate) fn null_capturing(
        target: Target,
        capture: Arc<std::sync::atomic::AtomicU64>,
    ) -> Device {
        let driver = Arc::new(null::NullDriver::capturing(target, capture));
        Device::of(driver, "null")
    }

    /// Loads what conditional nodes of CUDA graphs need, which must not be done during a capture.
    ///
    /// # Errors
    /// `Driver` when the driver refuses it.
    pub(crate) fn prepare_conditionals(&self) -> Result<()> {
        self.driver.prepare_conditionals()
    }

    pub(crate) fn capture(&self, stream: &Stream) -> Option<u64> {
        self.driver.capture(stream.handle())
    }

    /// Memory in which a kernel of a plan reports of a wait, on each stream.
    ///
    /// # Errors
    /// `OutOfMemory` when memory is exhausted.
    pub(crate) fn report_site(&self, waited: Waited) -> Result<ReportSite> {
        ReportSite::new(self.driver.clone(), waited)
    }

    /// Where a wait reports that is launched into a stream, which is looked at when the stream is
    /// synchronised.
    ///
    /// # Errors
    /// `NotSupported` for a wait on more streams than a site has room for.
    pub(crate) fn report_address(&self, of: &Arc<ReportSite>, stream: &Stream) -> Result<u64> {
        self.reports.expect(of, stream.handle(), self.capture(stream).is_some())
    }

    pub(crate) fn encode(&self, map: &TensorMap, address: u64) -> Result<[u64; MAP_WORDS]> {
        self.driver.encode(map, address)
    }

    /// Keeps the device's context current on this thread, for several calls at once.
    ///
    /// # Errors
    /// `DeviceLost` after a fault; `Driver` when the context cannot be made current.
    pub(crate) fn enter(&self) -> Result<Entered<'_>> {
        let other = self.driver.enter()?;
        Ok(Entered { left: other.then_some(&*self.driver) })
    }

    pub(crate) fn enter_background(&self) -> Result<()> {
        self.driver.enter_background()
    }

    /// Copies from any device address to the host, ordered after all work on the default stream.
    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.driver.read(address, bytes, 0)
    }

    pub(crate) fn load(
        &self,
        image: &Image,
        kernel: KernelName<'_>,
        shared_bytes: u32,
    ) -> Result<Arc<dyn Launchable>> {
        self.driver.load(image, kernel, shared_bytes)
    }

    /// Identifies the device within this process.
    pub(crate) fn owner(&self) -> usize {
        Arc::as_ptr(&self.driver).addr()
    }

    /// Whether a stream belongs to this device.
    pub(crate) fn owns(&self, stream: &Stream) -> bool {
        stream.is_of(&self.driver)
    }
}
