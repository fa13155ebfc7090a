//! The null device, without memory or execution, for measuring Kiln's own overhead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::compile::Image;
use crate::device::driver::{Driver, KernelName, Launch, Launchable, MAP_WORDS};
use crate::error::{Error, Result};
use crate::kernel::TensorMap;
use crate::target::Target;

#[derive(Debug)]
pub(super) struct NullDriver {
    target: Target,
    /// Next address; buffers are distinct and aligned as on a GPU.
    next: AtomicU64,
    /// The capture that contains every stream, 0 for none.
    #[cfg(test)]
    capture: Arc<AtomicU64>,
}

impl NullDriver {
    pub(super) fn new(target: Target) -> Self {
        NullDriver {
            target,
            next: AtomicU64::new(1 << 32),
            #[cfg(test)]
            capture: Arc::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn capturing(target: Target, capture: Arc<AtomicU64>) -> Self {
        NullDriver { capture, ..NullDriver::new(target) }
    }
}

impl Driver for NullDriver {
    fn target(&self) -> &Target {
        &self.target
    }

    fn alloc(&self, bytes: u64) -> Result<u64> {
        let step = bytes.max(1).checked_next_multiple_of(256).filter(|step| *step < 1 << 62);
        let step =
            step.ok_or_else(|| Error::out_of_memory(format!("failed to allocate {bytes} bytes")))?;
        Ok(self.next.fetch_add(step, Ordering::Relaxed))
    }

    fn free(&self, _address: u64) {}

    fn write(&self, _address: u64, _bytes: &[u8], _stream: u64) -> Result<()> {
        Ok(())
    }

    fn read(&self, _address: u64, bytes: &mut [u8], _stream: u64) -> Result<()> {
        bytes.fill(0);
        Ok(())
    }

    fn copy(&self, _from: u64, _to: u64, _bytes: u64, _stream: u64) -> Result<()> {
        Ok(())
    }

    fn stream_create(&self) -> Result<u64> {
        Ok(0)
    }

    fn lane_create(&self) -> Result<u64> {
        Ok(0)
    }

    fn stream_destroy(&self, _stream: u64) {}

    fn synchronize(&self, _stream: u64) -> Result<()> {
        Ok(())
    }

    fn event_record(&self, _stream: u64) -> Result<u64> {
        Ok(0)
    }

    fn event_destroy(&self, _event: u64) {}

    fn mark_create(&self) -> Result<u64> {
        Ok(0)
    }

    fn mark(&self, _event: u64, _stream: u64) -> Result<()> {
        Ok(())
    }

    fn wait(&self, _stream: u64, _event: u64) -> Result<()> {
        Ok(())
    }

    fn event_elapsed_ms(&self, _start: u64, _end: u64) -> Result<f64> {
        Ok(0.0)
    }

    #[cfg(test)]
    fn capture(&self, _stream: u64) -> Option<u64> {
        Some(self.capture.load(Ordering::SeqCst)).filter(|id| *id != 0)
    }

    fn encode(&self, _map: &TensorMap, address: u64) -> Result<[u64; MAP_WORDS]> {
        Ok([address; MAP_WORDS])
    }

    fn load(
        &self,
        _image: &Image,
        _kernel: KernelName<'_>,
        _shared: u32,
    ) -> Result<Arc<dyn Launchable>> {
        Ok(Arc::new(NullKernel))
    }
}

#[derive(Debug)]
struct NullKernel;

impl Launchable for NullKernel {
    fn launch(&self, launch: &Launch, arguments: &[u64], _stream: u64) -> Result<()> {
        std::hint::black_box((launch, arguments));
        Ok(())
    }
}
