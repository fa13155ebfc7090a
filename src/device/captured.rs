//! What a stream is captured into.

#![expect(unsafe_code, reason = "the CUDA driver is a C library")]

use std::ptr;

use cudarc::driver::{DriverError, sys};

/// The capture that a stream takes part in: its graph, and the nodes that the next one comes after,
/// which the driver keeps until the next call with the stream.
pub(super) struct Captured {
    /// Tells captures apart.
    pub(super) id: u64,
    pub(super) graph: sys::CUgraph,
    pub(super) dependencies: *const sys::CUgraphNode,
    pub(super) edges: *const sys::CUgraphEdgeData,
    pub(super) count: usize,
}

impl Captured {
    /// The capture of a stream, if it is captured.
    pub(super) fn of(stream: u64) -> Result<Option<Captured>, DriverError> {
        use sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
        let (dependencies, edges) = (ptr::null(), ptr::null());
        let mut captured =
            Captured { id: 0, graph: ptr::null_mut(), dependencies, edges, count: 0 };
        // SAFETY: the stream is alive, the pointers are valid for a write.
        let asked = unsafe {
            sys::cuStreamGetCaptureInfo_v3(
                stream as _,
                &mut status,
                &mut captured.id,
                &mut captured.graph,
                &mut captured.dependencies,
                &mut captured.edges,
                &mut captured.count,
            )
        };
        asked.result()?;
        Ok((status != CU_STREAM_CAPTURE_STATUS_NONE).then_some(captured))
    }

    /// The same of a stream that must be captured.
    pub(super) fn required(stream: u64) -> Result<Captured, DriverError> {
        let none = DriverError(sys::cudaError_enum::CUDA_ERROR_ILLEGAL_STATE);
        Captured::of(stream)?.ok_or(none)
    }
}
