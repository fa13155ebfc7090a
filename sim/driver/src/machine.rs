//! The driver's state: one device, its context, and what handles stand for.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use cudarc::driver::sys::CUresult;
use cudarc::driver::sys::CUstreamCaptureMode::{
    self, CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED,
};
use cudarc::driver::sys::cudaError_enum::*;
use kiln_sim::{Device, DeviceConfig, Module};

use crate::launch::{Function, Outcome, Work};

/// The one context there is.
pub const CONTEXT: u64 = 0xc0;
thread_local! {
    /// The context that is current on this thread, or 0.
    pub static CURRENT: Cell<u64> = const { Cell::new(0) };
    /// What this thread may do while streams are captured.
    pub static CAPTURE_MODE: Cell<CUstreamCaptureMode> =
        const { Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

/// What a stream has been captured into so far.
pub struct Capture {
    pub id: u64,
    pub mode: CUstreamCaptureMode,
    pub thread: std::thread::ThreadId,
    pub nodes: Vec<Work>,
    /// A call that captures forbid was made meanwhile.
    pub invalid: bool,
}

pub struct State {
    last: u64,
    pub initialised: bool,
    pub retained: u32,
    /// What a kernel failed with: every call fails with it from then on.
    pub failed: Option<CUresult>,
    pub modules: HashMap<u64, Module>,
    pub functions: HashMap<u64, Function>,
    /// Streams but the default one, which is 0 and never captured.
    pub streams: HashMap<u64, Option<Capture>>,
    pub events: HashMap<u64, Option<Instant>>,
    pub graphs: HashMap<u64, Arc<Vec<Work>>>,
}

impl State {
    /// A handle that nothing has had before.
    pub fn handle(&mut self) -> u64 {
        self.last += 0x10;
        self.last
    }

    fn captures(&mut self) -> impl Iterator<Item = &mut Capture> {
        self.streams.values_mut().flatten()
    }

    /// A call that might wait for the device: forbidden while a stream is captured, unless this
    /// thread or the capture is relaxed about it (`cuThreadExchangeStreamCaptureMode`).
    pub fn unsafe_call(&mut self) -> Outcome {
        let (own, mode) = (std::thread::current().id(), CAPTURE_MODE.get());
        let mut forbidden = false;
        for capture in self.captures() {
            let concerns = match (mode, capture.mode) {
                (CU_STREAM_CAPTURE_MODE_RELAXED, _) | (_, CU_STREAM_CAPTURE_MODE_RELAXED) => false,
                (CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL) => true,
                _ => capture.thread == own,
            };
            capture.invalid |= concerns;
            forbidden |= concerns;
        }
        if forbidden { Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// A stream that is not captured; the default one waits for all others, so none may be.
    pub fn uncaptured(&mut self, stream: u64) -> Outcome {
        if stream == 0 {
            let mut implied = false;
            for capture in self.captures() {
                (capture.invalid, implied) = (true, true);
            }
            return if implied { Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) } else { Ok(()) };
        }
        match self.streams.get_mut(&stream).ok_or(CUDA_ERROR_INVALID_HANDLE)? {
            None => Ok(()),
            Some(capture) => {
                capture.invalid = true;
                Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }
}

pub struct Machine {
    pub device: Device,
    state: Mutex<State>,
}

impl Machine {
    /// The state, whoever asks.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, for a call that needs a current context on a device that works.
    pub fn current(&self) -> Outcome<MutexGuard<'_, State>> {
        let state = self.state();
        match state.failed {
            Some(code) => Err(code),
            None if !state.initialised => Err(CUDA_ERROR_NOT_INITIALIZED),
            None if CURRENT.get() != CONTEXT || state.retained == 0 => {
                Err(CUDA_ERROR_INVALID_CONTEXT)
            }
            None => Ok(state),
        }
    }

    /// Runs kernels one after another. Who launches learns of a shape that does not fit; what a
    /// kernel does is learnt by who waits.
    pub fn run(&self, nodes: &[Work]) -> Outcome {
        for work in nodes {
            match work.run(&self.device) {
                Ok(()) => {}
                Err(CUDA_ERROR_INVALID_VALUE) => return Err(CUDA_ERROR_INVALID_VALUE),
                Err(code) => {
                    self.state().failed = Some(code);
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

pub static MACHINE: LazyLock<Machine> = LazyLock::new(|| Machine {
    device: Device::new(DeviceConfig::default()),
    state: Mutex::new(State {
        last: 0x1000,
        initialised: false,
        retained: 0,
        failed: None,
        modules: HashMap::new(),
        functions: HashMap::new(),
        streams: HashMap::new(),
        events: HashMap::new(),
        graphs: HashMap::new(),
    }),
});

/// The code of a call that gives nothing.
pub fn result(outcome: Outcome) -> CUresult {
    outcome.err().unwrap_or(CUDA_SUCCESS)
}

/// Writes what a call gives, if it does.
///
/// # Safety
/// `to` is null or valid for a write.
pub unsafe fn give<T>(to: *mut T, outcome: Outcome<T>) -> CUresult {
    match outcome {
        Err(code) => return code,
        Ok(_) if to.is_null() => return CUDA_ERROR_INVALID_VALUE,
        // SAFETY: the caller's pointer, for a write.
        Ok(value) => unsafe { to.write(value) },
    }
    CUDA_SUCCESS
}
