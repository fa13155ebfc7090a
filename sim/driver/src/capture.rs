//! Streams, and what they are captured into.

use std::cell::Cell;
use std::collections::HashMap;
use std::thread::ThreadId;

use cudarc::driver::sys::CUstreamCaptureMode::{
    self, CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED,
};
use cudarc::driver::sys::cudaError_enum::*;

use crate::outcome::Outcome;
use crate::task::Task;

thread_local! {
    /// What this thread may do while streams are captured.
    pub static CAPTURE_MODE: Cell<CUstreamCaptureMode> =
        const { Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

/// The legacy default stream, by its other name.
pub const LEGACY: u64 = 1;
/// The default stream of a thread.
pub const PER_THREAD: u64 = 2;
/// A stream that does not wait for the legacy default one.
pub const NON_BLOCKING: u32 = 1;

/// What streams have been captured into so far.
pub struct Capture {
    pub id: u64,
    pub mode: CUstreamCaptureMode,
    pub thread: ThreadId,
    /// The stream that the capture began with, which ends it.
    pub origin: u64,
    pub nodes: Vec<Task>,
    /// The graph that the nodes are added to; one of its own has the capture's id.
    pub graph: u64,
    /// A call that captures forbid was made meanwhile.
    pub invalid: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Stream {
    /// The capture that it takes part in.
    pub capture: Option<u64>,
    pub flags: u32,
    pub priority: i32,
    pub context: u64,
}

/// Streams by handle. The default ones are there from the start, but for the legacy one, which is
/// never captured.
pub struct Streams {
    all: HashMap<u64, Stream>,
    captures: HashMap<u64, Capture>,
}

impl Default for Streams {
    fn default() -> Streams {
        let per_thread = (PER_THREAD, Stream::default());
        Streams { all: HashMap::from([per_thread]), captures: HashMap::new() }
    }
}

impl Streams {
    pub fn insert(&mut self, handle: u64, stream: Stream) {
        self.all.insert(handle, stream);
    }

    /// Removes a stream, and with it a capture that only it could have ended.
    pub fn remove(&mut self, handle: u64) -> Outcome {
        if handle == PER_THREAD {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        self.all.remove(&handle).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        self.captures.retain(|_, capture| capture.origin != handle);
        Ok(())
    }

    pub fn remove_of_context(&mut self, context: u64) {
        self.all.retain(|&handle, stream| handle == PER_THREAD || stream.context != context);
    }

    /// A stream, the legacy default one among them.
    pub fn get(&self, handle: u64) -> Outcome<Stream> {
        match handle {
            0 | LEGACY => Ok(Stream::default()),
            _ => self.all.get(&handle).cloned().ok_or(CUDA_ERROR_INVALID_HANDLE),
        }
    }

    /// The capture that a stream takes part in, if any.
    pub fn captured(&mut self, handle: u64) -> Outcome<Option<&mut Capture>> {
        let capture = self.get(handle)?.capture;
        let capture = capture.and_then(|id| self.captures.get_mut(&id));
        match capture {
            Some(capture) if capture.invalid => Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
            capture => Ok(capture),
        }
    }

    /// The capture that a stream takes part in, valid or not.
    pub fn capture(&self, handle: u64) -> Outcome<Option<&Capture>> {
        let capture = self.get(handle)?.capture;
        Ok(capture.and_then(|id| self.captures.get(&id)))
    }

    /// Whether a handle is a capture's, whose graph has it too.
    pub fn is_capture(&self, id: u64) -> bool {
        self.captures.contains_key(&id)
    }

    /// Begins a capture at a stream, into a graph.
    pub fn begin(
        &mut self,
        id: u64,
        graph: u64,
        origin: u64,
        mode: CUstreamCaptureMode,
    ) -> Outcome {
        if self.capture(origin)?.is_some() {
            return Err(CUDA_ERROR_ILLEGAL_STATE);
        }
        let thread = std::thread::current().id();
        let nodes = Vec::new();
        let capture = Capture { id, mode, thread, origin, nodes, graph, invalid: false };
        match self.all.get_mut(&origin) {
            Some(stream) => stream.capture = Some(id),
            None => return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
        }
        self.captures.insert(id, capture);
        Ok(())
    }

    /// A stream joins a capture: it waits for an event of it.
    pub fn join(&mut self, handle: u64, id: u64) -> Outcome {
        if !self.captures.contains_key(&id) {
            return Err(CUDA_ERROR_CAPTURED_EVENT);
        }
        let stream = self.all.get_mut(&handle).ok_or(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)?;
        match stream.capture {
            Some(other) if other != id => Err(CUDA_ERROR_STREAM_CAPTURE_MERGE),
            _ => {
                stream.capture = Some(id);
                Ok(())
            }
        }
    }

    /// The nodes that are captured into a graph.
    pub fn nodes_of(&mut self, graph: u64) -> Option<&mut Vec<Task>> {
        let mut all = self.captures.values_mut();
        all.find(|of| of.graph == graph).map(|of| &mut of.nodes)
    }

    /// Ends a capture at the stream that it began with; returns its graph and its nodes.
    pub fn end(&mut self, origin: u64) -> Outcome<(u64, Vec<Task>)> {
        let id = self.get(origin)?.capture.ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        let capture = self.captures.get(&id).ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        if capture.origin != origin {
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        let own = std::thread::current().id();
        if capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture.thread != own {
            return Err(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
        let capture = self.captures.remove(&id).ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        for stream in self.all.values_mut().filter(|stream| stream.capture == Some(id)) {
            stream.capture = None;
        }
        if capture.invalid {
            return Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        Ok((capture.graph, capture.nodes))
    }

    /// A call that might wait for the device: forbidden while a stream is captured, unless this
    /// thread or the capture is relaxed about it (`cuThreadExchangeStreamCaptureMode`).
    pub fn unsafe_call(&mut self) -> Outcome {
        let (own, mode) = (std::thread::current().id(), CAPTURE_MODE.get());
        let mut forbidden = false;
        for capture in self.captures.values_mut() {
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

    /// A stream that is not captured. The legacy default one waits for all others that do not
    /// decline, so none of these may be.
    pub fn uncaptured(&mut self, handle: u64) -> Outcome {
        if matches!(handle, 0 | LEGACY) {
            let mut implied = false;
            for capture in self.captures.values_mut() {
                let origin = self.all.get(&capture.origin);
                if origin.is_some_and(|origin| origin.flags & NON_BLOCKING == 0) {
                    (capture.invalid, implied) = (true, true);
                }
            }
            return if implied { Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) } else { Ok(()) };
        }
        let capture = self.get(handle)?.capture;
        match capture.and_then(|id| self.captures.get_mut(&id)) {
            None => Ok(()),
            Some(capture) => {
                capture.invalid = true;
                Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }
}
