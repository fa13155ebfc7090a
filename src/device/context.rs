//! The primary context of a GPU, which is current on a thread for as long as a call lasts.

#![expect(unsafe_code, reason = "the CUDA driver is a C library")]

use std::ptr;
use std::sync::Arc;

use cudarc::driver::{DriverError, result, sys};

use crate::device::health::Health;
use crate::error::{Error, Result};

/// What is attempted when a plan is executed.
pub(super) const LAUNCH: &str = "launch a kernel";

/// What is attempted when a handle is dropped, whose error nobody hears.
pub(super) const RELEASE: &str = "release a handle";
/// What is attempted when a stream's event is recorded, made for it or made before.
pub(super) const RECORD: &str = "record an event";

/// A device's primary context, retained while in use.
#[derive(Debug)]
pub(super) struct Primary {
    pub(super) device: sys::CUdevice,
    pub(super) context: sys::CUcontext,
    pub(super) health: Arc<Health>,
}

// SAFETY: a CUDA context may be current on any thread; the driver locks internally.
unsafe impl Send for Primary {}
// SAFETY: as above.
unsafe impl Sync for Primary {}

/// Something that is attempted in a context that works and is current. When it is dropped, what was
/// current on the thread before is so again.
pub(super) struct Call<'a> {
    primary: &'a Primary,
    attempt: &'static str,
    pushed: bool,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if self.pushed {
            self.primary.leave();
        }
    }
}

impl Call<'_> {
    pub(super) fn failed(&self, error: DriverError) -> Error {
        self.primary.health.failed(self.attempt, error)
    }

    /// Waits for what a stream has been given so far.
    pub(super) fn waits(
        &self,
        stream: u64,
        wait: impl FnOnce() -> Result<(), DriverError>,
    ) -> Result<()> {
        let health = &self.primary.health;
        let so_far = health.launched();
        wait().map_err(|error| self.failed(error))?;
        health.ended(stream, so_far);
        Ok(())
    }
}

impl Primary {
    /// Begins a call: makes the context current on this thread, if necessary, for as long as the
    /// result lives.
    ///
    /// # Errors
    /// As [`Primary::enter`].
    pub(super) fn call(&self, attempt: &'static str) -> Result<Call<'_>> {
        Ok(Call { primary: self, attempt, pushed: self.enter(attempt)? })
    }

    /// Makes the context current on this thread. Returns whether another was, which
    /// [`Primary::leave`] makes current again.
    ///
    /// # Errors
    /// `DeviceLost` after a fault; `Driver` when the context cannot be made current.
    pub(super) fn enter(&self, attempt: &str) -> Result<bool> {
        self.health.check(attempt)?;
        let failed = |error| self.health.failed(attempt, error);
        let other = result::ctx::get_current().map_err(failed)? != Some(self.context);
        if other {
            // SAFETY: the context is retained for the life of `self`.
            unsafe { sys::cuCtxPushCurrent_v2(self.context) }.result().map_err(failed)?;
        }
        Ok(other)
    }

    pub(super) fn leave(&self) {
        let mut popped = ptr::null_mut();
        // SAFETY: `popped` is valid for a write. What `enter` has pushed is on top: calls end in
        // the opposite order of their beginning. An error is an earlier asynchronous one.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&mut popped) };
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        // SAFETY: retained once in `open`. An error at shutdown cannot be handled.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}
