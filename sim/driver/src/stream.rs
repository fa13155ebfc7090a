//! Streams, events, and capture of a stream into a graph.

use std::ffi::{c_uint, c_ulonglong, c_void};
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::sys::CUresult;
use cudarc::driver::sys::CUstreamCaptureMode::{self, *};
use cudarc::driver::sys::CUstreamCaptureStatus::{self, *};
use cudarc::driver::sys::cudaError_enum::*;

use crate::launch::Outcome;
use crate::machine::{CAPTURE_MODE, Capture, MACHINE, give, result};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut u64, _flags: c_uint) -> CUresult {
    let create = || {
        let mut state = MACHINE.current()?;
        let handle = state.handle();
        state.streams.insert(handle, None);
        Ok(handle)
    };
    // SAFETY: the caller gives a place for the result, as the API asks.
    unsafe { give(stream, create()) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(stream: u64) -> CUresult {
    let destroy = || {
        let removed = MACHINE.current()?.streams.remove(&stream);
        removed.map(drop).ok_or(CUDA_ERROR_INVALID_HANDLE)
    };
    result(destroy())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: u64) -> CUresult {
    result(MACHINE.current().and_then(|mut state| state.uncaptured(stream)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut u64, _flags: c_uint) -> CUresult {
    let create = || {
        let mut state = MACHINE.current()?;
        let handle = state.handle();
        state.events.insert(handle, None);
        Ok(handle)
    };
    // SAFETY: the caller gives a place for the result, as the API asks.
    unsafe { give(event, create()) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(event: u64, stream: u64) -> CUresult {
    let record = || {
        let mut state = MACHINE.current()?;
        state.uncaptured(stream)?;
        let recorded = state.events.get_mut(&event).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        *recorded = Some(Instant::now());
        Ok(())
    };
    result(record())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(event: u64) -> CUresult {
    let known = |known| if known { Ok(()) } else { Err(CUDA_ERROR_INVALID_HANDLE) };
    result(MACHINE.current().and_then(|state| known(state.events.contains_key(&event))))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(event: u64) -> CUresult {
    let destroy = || {
        let removed = MACHINE.current()?.events.remove(&event);
        removed.map(drop).ok_or(CUDA_ERROR_INVALID_HANDLE)
    };
    result(destroy())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime_v2(
    milliseconds: *mut f32,
    start: u64,
    end: u64,
) -> CUresult {
    let elapsed = || {
        let state = MACHINE.current()?;
        match (state.events.get(&start), state.events.get(&end)) {
            (Some(Some(start)), Some(Some(end))) => {
                Ok(end.saturating_duration_since(*start).as_secs_f32() * 1e3)
            }
            _ => Err(CUDA_ERROR_INVALID_HANDLE),
        }
    };
    // SAFETY: the caller gives a place for the result, as the API asks.
    unsafe { give(milliseconds, elapsed()) }
}

fn capture_mode(mode: c_uint) -> Outcome<CUstreamCaptureMode> {
    [
        CU_STREAM_CAPTURE_MODE_GLOBAL,
        CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CU_STREAM_CAPTURE_MODE_RELAXED,
    ]
    .into_iter()
    .find(|known| *known as c_uint == mode)
    .ok_or(CUDA_ERROR_INVALID_VALUE)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) -> CUresult {
    // SAFETY: the caller gives a mode to exchange, as the API asks.
    let wanted = capture_mode(unsafe { *mode });
    // SAFETY: the caller gives a place for the result, as the API asks.
    unsafe { give(mode, wanted.map(|wanted| CAPTURE_MODE.replace(wanted) as c_uint)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCapture_v2(stream: u64, mode: c_uint) -> CUresult {
    let begin = || {
        let (mut state, mode) = (MACHINE.current()?, capture_mode(mode)?);
        state.uncaptured(stream)?;
        let id = state.handle();
        let thread = std::thread::current().id();
        let capture = Capture { id, mode, thread, nodes: Vec::new(), invalid: false };
        match state.streams.get_mut(&stream) {
            Some(captured) => *captured = Some(capture),
            None => return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
        }
        Ok(())
    };
    result(begin())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(stream: u64, graph: *mut u64) -> CUresult {
    let end = || {
        let mut state = MACHINE.current()?;
        let captured = state.streams.get_mut(&stream).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let capture = captured.take().ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        if capture.invalid {
            return Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        let handle = state.handle();
        state.graphs.insert(handle, Arc::new(capture.nodes));
        Ok(handle)
    };
    // SAFETY: the caller gives a place for the result, as the API asks.
    unsafe { give(graph, end()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetCaptureInfo_v3(
    stream: u64,
    status: *mut CUstreamCaptureStatus,
    id: *mut u64,
    _graph: *mut u64,
    _dependencies: *mut *const c_void,
    _edges: *mut *const c_void,
    _count: *mut usize,
) -> CUresult {
    let ask = || {
        let mut state = MACHINE.current()?;
        match state.streams.get(&stream) {
            Some(None) => Ok((CU_STREAM_CAPTURE_STATUS_NONE, 0)),
            Some(Some(capture)) if capture.invalid => {
                Ok((CU_STREAM_CAPTURE_STATUS_INVALIDATED, capture.id))
            }
            Some(Some(capture)) => Ok((CU_STREAM_CAPTURE_STATUS_ACTIVE, capture.id)),
            None => state.uncaptured(stream).map(|()| (CU_STREAM_CAPTURE_STATUS_NONE, 0)),
        }
    };
    let (now, of) = match ask() {
        Ok(answer) => answer,
        Err(code) => return code,
    };
    if !id.is_null() {
        // SAFETY: it is not null, so it is a place for a number, as the API asks.
        unsafe { id.write(of) };
    }
    // SAFETY: the caller gives a place for the result, as the API asks.
    unsafe { give(status, Ok(now)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(
    exec: *mut u64,
    graph: u64,
    _flags: c_ulonglong,
) -> CUresult {
    let instantiate = || {
        let mut state = MACHINE.current()?;
        let nodes = state.graphs.get(&graph).ok_or(CUDA_ERROR_INVALID_HANDLE)?.clone();
        let handle = state.handle();
        state.graphs.insert(handle, nodes);
        Ok(handle)
    };
    // SAFETY: the caller gives a place for the result, as the API asks.
    unsafe { give(exec, instantiate()) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphLaunch(exec: u64, stream: u64) -> CUresult {
    let launch = || {
        let mut state = MACHINE.current()?;
        state.uncaptured(stream)?;
        let nodes = state.graphs.get(&exec).ok_or(CUDA_ERROR_INVALID_HANDLE)?.clone();
        drop(state);
        MACHINE.run(&nodes)
    };
    result(launch())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDestroy(graph: u64) -> CUresult {
    let destroy = || {
        let removed = MACHINE.current()?.graphs.remove(&graph);
        removed.map(drop).ok_or(CUDA_ERROR_INVALID_HANDLE)
    };
    result(destroy())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecDestroy(exec: u64) -> CUresult {
    cuGraphDestroy(exec)
}
