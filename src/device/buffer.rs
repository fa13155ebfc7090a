//! Owned handles of device memory, streams and events.

use std::sync::Arc;

use crate::device::driver::{Conditional, Driver};
use crate::device::reports::Reports;
use crate::error::{Error, Result};

/// Device memory. Clones share it; it is freed when the last clone is dropped, after queued work on
/// it has finished. Variant packs hold clones.
#[derive(Debug, Clone)]
pub struct Buffer {
    memory: Arc<Memory>,
}

#[derive(Debug)]
struct Memory {
    driver: Arc<dyn Driver>,
    reports: Arc<Reports>,
    address: u64,
    bytes: u64,
}

impl Buffer {
    pub(super) fn new(
        driver: Arc<dyn Driver>,
        reports: Arc<Reports>,
        bytes: u64,
    ) -> Result<Buffer> {
        let address = driver.alloc(bytes)?;
        Ok(Buffer { memory: Arc::new(Memory { driver, reports, address, bytes }) })
    }

    /// Device address.
    pub fn address(&self) -> u64 {
        self.memory.address
    }

    /// Identifies the device of the memory within this process.
    pub(crate) fn owner(&self) -> usize {
        Arc::as_ptr(&self.memory.driver).addr()
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes
    }

    /// Copies from the host to `offset`, ordered after all work on the default stream; synchronous.
    ///
    /// # Errors
    /// `BadParam` when the range exceeds the buffer, `Driver` when the copy fails.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len())?;
        self.memory.driver.write(self.memory.address + offset, bytes, 0)
    }

    /// Copies from the host to `offset`, ordered after all work on this stream; synchronous.
    ///
    /// # Errors
    /// As [`Buffer::write`]; `BadParam` for a stream of another device.
    pub fn write_on(&self, stream: &Stream, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len())?;
        if !Arc::ptr_eq(&self.memory.driver, &stream.driver) {
            return Err(Error::bad_param("the stream belongs to another device than the buffer"));
        }
        self.memory.driver.write(self.memory.address + offset, bytes, stream.handle)
    }

    /// Copies from `offset` to the host, ordered after all work on the default stream; synchronous.
    ///
    /// # Errors
    /// `BadParam` when the range exceeds the buffer, `Driver` when the copy fails or a wait for a
    /// signal on the default stream has ended by its time.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.check(offset, bytes.len())?;
        self.memory.driver.read(self.memory.address + offset, bytes, 0)?;
        self.memory.reports.check(0)
    }

    /// Copies the whole buffer to the host.
    ///
    /// # Errors
    /// As [`Buffer::read`].
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.memory.bytes as usize];
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }

    fn check(&self, offset: u64, bytes: usize) -> Result<()> {
        let end = offset.checked_add(bytes as u64);
        match end.is_some_and(|end| end <= self.memory.bytes) {
            true => Ok(()),
            false => Err(Error::bad_param(format!(
                "{bytes} bytes at offset {offset} exceed a buffer of {} bytes",
                self.memory.bytes
            ))),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.driver.free(self.address);
    }
}

/// A stream of a device.
#[derive(Debug)]
pub struct Stream {
    driver: Arc<dyn Driver>,
    reports: Arc<Reports>,
    handle: u64,
    owned: bool,
    /// Whether each kernel begins when what is before it has ended, even one that may begin
    /// earlier.
    in_turn: bool,
}

impl Stream {
    pub(super) fn new(driver: Arc<dyn Driver>, reports: Arc<Reports>) -> Result<Stream> {
        let handle = driver.stream_create()?;
        Ok(Stream { driver, reports, handle, owned: true, in_turn: false })
    }

    /// A stream that marks alone order with others.
    pub(super) fn lane(driver: Arc<dyn Driver>, reports: Arc<Reports>) -> Result<Stream> {
        let handle = driver.lane_create()?;
        Ok(Stream { driver, reports, handle, owned: true, in_turn: true })
    }

    pub(super) fn external(driver: Arc<dyn Driver>, reports: Arc<Reports>, handle: u64) -> Stream {
        Stream { driver, reports, handle, owned: false, in_turn: false }
    }

    /// Native handle: a `CUstream` on a GPU.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// Waits until all queued work has finished.
    ///
    /// # Errors
    /// `Driver` when queued work has failed, or a wait for a signal has ended by its time.
    pub fn synchronize(&self) -> Result<()> {
        self.driver.synchronize(self.handle)?;
        self.reports.check(self.handle)
    }

    /// Copies on the device, ordered as a kernel is; waits for nothing.
    ///
    /// # Errors
    /// `Driver` when the copy cannot be queued.
    pub(crate) fn copy(&self, from: u64, to: u64, bytes: u64) -> Result<()> {
        self.driver.copy(from, to, bytes, self.handle)
    }

    /// Copies from any device address to the host, ordered after all work on the stream;
    /// synchronous.
    ///
    /// # Errors
    /// `Driver` when the copy fails, or a wait for a signal has ended by its time.
    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.driver.read(address, bytes, self.handle)?;
        self.reports.check(self.handle)
    }

    /// Copies from memory of another owner to the host, ordered after all work on the stream;
    /// synchronous.
    ///
    /// # Errors
    /// `Driver` when the copy fails, or a wait for a signal has ended by its time.
    ///
    /// # Safety
    /// The memory must be the device's, of so many bytes, and stay allocated until this returns.
    pub unsafe fn read_address(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.read(address, bytes)
    }

    /// Copies from the host to memory of another owner, ordered after all work on the stream;
    /// synchronous.
    ///
    /// # Errors
    /// `Driver` when the copy fails.
    ///
    /// # Safety
    /// As [`Stream::read_address`].
    pub unsafe fn write_address(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.driver.write(address, bytes, self.handle)
    }

    /// Records an event.
    ///
    /// # Errors
    /// `Driver` when the event cannot be recorded.
    pub fn record(&self) -> Result<Event> {
        let handle = self.driver.event_record(self.handle)?;
        let (driver, reports) = (self.driver.clone(), self.reports.clone());
        Ok(Event { driver, reports, stream: self.handle, handle })
    }

    /// Whether each kernel begins when what is before it has ended, even one that may begin
    /// earlier.
    pub(crate) fn launches_in_turn(&self) -> bool {
        self.in_turn
    }

    /// Moves a mark of the device behind all that the stream has been given.
    ///
    /// # Errors
    /// `Driver` when it cannot be recorded.
    pub(crate) fn mark(&self, mark: &Mark) -> Result<()> {
        self.driver.mark(mark.handle, self.handle)
    }

    /// Orders what the stream is given from now on behind what is before a mark of the device now.
    ///
    /// # Errors
    /// `Driver` when the driver refuses it.
    pub(crate) fn wait_for(&self, mark: &Mark) -> Result<()> {
        self.driver.wait(self.handle, mark.handle)
    }

    /// Whether what it is given is captured into a CUDA graph.
    pub(crate) fn is_captured(&self) -> bool {
        self.driver.capture(self.handle).is_some()
    }

    /// Adds a conditional node to the CUDA graph that it is captured into, on which the byte at an
    /// address decides. Returns what decides, and streams that are captured into its bodies.
    ///
    /// # Errors
    /// `NotSupported` where the device has none, `Driver` when the node cannot be added.
    pub(crate) fn branch(&self, kind: Conditional, flag: u64) -> Result<(u64, Vec<Stream>)> {
        let branching = self.driver.branch(self.handle, kind, flag)?;
        let stream = |handle| Stream {
            driver: self.driver.clone(),
            reports: self.reports.clone(),
            handle,
            owned: true,
            // What edges bodies may have no document says.
            in_turn: true,
        };
        Ok((branching.condition, branching.streams.into_iter().map(stream).collect()))
    }

    /// Lets the byte at an address decide on a conditional node again.
    ///
    /// # Errors
    /// `Driver` when that cannot be captured.
    pub(crate) fn decide(&self, condition: u64, flag: u64) -> Result<()> {
        self.driver.decide(self.handle, condition, flag)
    }

    /// Ends the body of a conditional node.
    ///
    /// # Errors
    /// `Driver` when something in it cannot be captured.
    pub(crate) fn branch_end(&self) -> Result<()> {
        self.driver.branch_end(self.handle)
    }

    pub(super) fn is_of(&self, driver: &Arc<dyn Driver>) -> bool {
        Arc::ptr_eq(&self.driver, driver)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned {
            self.reports.forget(self.handle);
            self.driver.stream_destroy(self.handle);
        }
    }
}

/// A place among the work of a stream, behind which that of other streams may be ordered.
#[derive(Debug)]
pub(crate) struct Mark {
    driver: Arc<dyn Driver>,
    handle: u64,
}

impl Mark {
    pub(super) fn new(driver: Arc<dyn Driver>) -> Result<Mark> {
        let handle = driver.mark_create()?;
        Ok(Mark { driver, handle })
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.driver.event_destroy(self.handle);
    }
}

/// An event recorded on a stream.
#[derive(Debug)]
pub struct Event {
    driver: Arc<dyn Driver>,
    reports: Arc<Reports>,
    stream: u64,
    handle: u64,
}

impl Event {
    /// Milliseconds from `earlier` to this event; waits for this event.
    ///
    /// # Errors
    /// `BadParam` when the events belong to different devices, `Driver` when earlier work has
    /// failed or a wait for a signal has ended by its time.
    pub fn elapsed_ms(&self, earlier: &Event) -> Result<f64> {
        if !Arc::ptr_eq(&self.driver, &earlier.driver) {
            return Err(Error::bad_param("the events belong to different devices"));
        }
        let elapsed = self.driver.event_elapsed_ms(earlier.handle, self.handle)?;
        self.reports.check(self.stream)?;
        Ok(elapsed)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.driver.event_destroy(self.handle);
    }
}
