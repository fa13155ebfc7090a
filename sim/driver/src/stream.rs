//! Streams: made, waited for, captured, and told to call functions of the host.

use std::ffi::{c_int, c_uint, c_void};

use cudarc::driver::sys::CUstreamCaptureMode::{self, *};
use cudarc::driver::sys::CUstreamCaptureStatus::*;
use cudarc::driver::sys::cudaError_enum::*;

use crate::capture::{CAPTURE_MODE, LEGACY, NON_BLOCKING, PER_THREAD, Stream};
use crate::machine::{MACHINE, current_context, driver};
use crate::outcome::Outcome;
use crate::pointer::{Call, Host, In, Out};
use crate::task::Task;

/// The priorities that streams may have, from the lowest on.
pub const PRIORITIES: (i32, i32) = (0, -5);

fn create(stream: Out<u64>, flags: c_uint, priority: c_int) -> Outcome {
    if flags & !NON_BLOCKING != 0 || stream.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut state = MACHINE.current()?;
    let handle = state.handle();
    let priority = priority.clamp(PRIORITIES.1, PRIORITIES.0);
    let context = current_context();
    state.streams.insert(handle, Stream { capture: None, flags, priority, context });
    stream.put(handle)
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

/// Whether a stream is captured, the capture's id and its graph.
fn captured(stream: u64) -> Outcome<(c_uint, u64, u64)> {
    let mut state = MACHINE.current()?;
    if matches!(stream, 0 | LEGACY) {
        state.streams.uncaptured(stream)?;
    }
    Ok(match state.streams.capture(stream)? {
        None => (CU_STREAM_CAPTURE_STATUS_NONE as c_uint, 0, 0),
        Some(of) if of.invalid => (CU_STREAM_CAPTURE_STATUS_INVALIDATED as c_uint, of.id, of.graph),
        Some(of) => (CU_STREAM_CAPTURE_STATUS_ACTIVE as c_uint, of.id, of.graph),
    })
}

/// What is known of a capture. Its graph has no nodes that have handles: one comes after another.
fn graph_so_far(
    stream: u64,
    status: Out<c_uint>,
    id: Out<u64>,
    graph: Out<u64>,
    dependencies: Out<In<u64>>,
    count: Out<usize>,
) -> Outcome {
    let (now, of, its_graph) = captured(stream)?;
    id.offer(of);
    graph.offer(its_graph);
    dependencies.offer(In::null());
    count.offer(0);
    status.put(now)
}

/// A function that is told of a stream and a code.
pub type Callback = Option<unsafe extern "C" fn(u64, c_uint, *mut c_void)>;
/// A function of the host with the value that it is called with.
pub type HostFunction = Option<unsafe extern "C" fn(*mut c_void)>;

/// The context of a stream.
fn context(stream: u64) -> Outcome<u64> {
    let state = MACHINE.current()?;
    let known = state.streams.get(stream)?;
    Ok(if matches!(stream, 0 | LEGACY | PER_THREAD) { current_context() } else { known.context })
}

driver! {
    fn cuStreamCreate(stream: Out<u64>, flags: c_uint) {
        create(stream, flags, 0)
    }

    fn cuStreamCreateWithPriority(stream: Out<u64>, flags: c_uint, priority: c_int) {
        create(stream, flags, priority)
    }

    fn cuStreamDestroy_v2(stream: u64) {
        MACHINE.current()?.streams.remove(stream)
    }

    fn cuStreamGetPriority(stream: u64, priority: Out<c_int>) {
        let known = MACHINE.current()?.streams.get(stream)?;
        priority.put(known.priority)
    }

    fn cuStreamGetFlags(stream: u64, flags: Out<c_uint>) {
        let known = MACHINE.current()?.streams.get(stream)?;
        flags.put(known.flags)
    }

    fn cuStreamGetId(stream: u64, id: Out<u64>) {
        MACHINE.current()?.streams.get(stream)?;
        id.put(if stream == 0 { LEGACY } else { stream })
    }

    fn cuStreamGetDevice(stream: u64, device: Out<c_int>) {
        MACHINE.current()?.streams.get(stream)?;
        device.put(0)
    }

    fn cuStreamGetCtx(stream: u64, of: Out<u64>) {
        of.put(context(stream)?)
    }

    fn cuStreamGetCtx_v2(stream: u64, of: Out<u64>, green: Out<u64>) {
        green.offer(0);
        of.put(context(stream)?)
    }

    fn cuStreamSynchronize(stream: u64) {
        let mut state = MACHINE.current()?;
        state.streams.uncaptured(stream)
    }

    fn cuStreamQuery(stream: u64) {
        let mut state = MACHINE.current()?;
        state.streams.uncaptured(stream)
    }

    fn cuStreamWaitEvent(stream: u64, event: u64, flags: c_uint) {
        if flags > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut state = MACHINE.current()?;
        state.streams.get(stream)?;
        let event = state.events.get(&event).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        // What a stream was given has run, so that there is nothing to wait for.
        match event.captured {
            Some(id) => state.streams.join(stream, id),
            None => Ok(()),
        }
    }

    fn cuStreamAddCallback(stream: u64, callback: Callback, value: Host, flags: c_uint) {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let callback = callback.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        MACHINE.current()?.streams.uncaptured(stream)?;
        // SAFETY: the caller asked for this call with this value.
        unsafe { callback(stream, CUDA_SUCCESS as c_uint, value.pointer()) };
        Ok(())
    }

    fn cuLaunchHostFunc(stream: u64, function: HostFunction, value: Host) {
        if function.is_none() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        MACHINE.submit(stream, Task::Call(Call { function, value }))
    }

    fn cuStreamAttachMemAsync(stream: u64, address: u64, bytes: usize, flags: c_uint) {
        let _ = bytes;
        let state = MACHINE.current()?;
        state.streams.get(stream)?;
        if !matches!(flags, 1 | 2 | 4) || MACHINE.device.allocation(address).is_none() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<c_uint>) {
        let wanted = capture_mode(mode.get()?)?;
        mode.put(CAPTURE_MODE.replace(wanted) as c_uint)
    }

    fn cuStreamBeginCapture_v2(stream: u64, mode: c_uint) {
        let mut state = MACHINE.current()?;
        let mode = capture_mode(mode)?;
        if matches!(stream, 0 | LEGACY) {
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        let id = state.handle();
        state.streams.begin(id, id, stream, mode)
    }

    fn cuStreamBeginCaptureToGraph(
        stream: u64,
        graph: u64,
        _dependencies: In<u64>,
        _edges: In<u64>,
        _count: usize,
        mode: c_uint,
    ) {
        let mut state = MACHINE.current()?;
        let mode = capture_mode(mode)?;
        if matches!(stream, 0 | LEGACY) {
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        state.graphs.get(&graph).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if state.streams.nodes_of(graph).is_some() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let id = state.handle();
        state.streams.begin(id, graph, stream, mode)
    }

    // Nodes come one after another, whatever is said.
    fn cuStreamUpdateCaptureDependencies_v2(
        stream: u64,
        dependencies: In<u64>,
        _edges: In<u64>,
        count: usize,
        flags: c_uint,
    ) {
        dependencies.all(count)?;
        match (flags, captured(stream)?.1) {
            (2.., _) => Err(CUDA_ERROR_INVALID_VALUE),
            (_, 0) => Err(CUDA_ERROR_ILLEGAL_STATE),
            _ => Ok(()),
        }
    }

    fn cuStreamEndCapture(stream: u64, graph: Out<u64>) {
        let mut state = MACHINE.current()?;
        let (own, nodes) = state.streams.end(stream)?;
        let before = state.graphs.get(&own).map_or_else(Vec::new, |nodes| nodes.to_vec());
        state.graphs.insert(own, [before, nodes].concat().into());
        graph.put(own)
    }

    fn cuStreamIsCapturing(stream: u64, status: Out<c_uint>) {
        status.put(captured(stream)?.0)
    }

    fn cuStreamGetCaptureInfo(stream: u64, status: Out<c_uint>, id: Out<u64>) {
        let (now, of, _) = captured(stream)?;
        id.offer(of);
        status.put(now)
    }

    fn cuStreamGetCaptureInfo_v2(
        stream: u64,
        status: Out<c_uint>,
        id: Out<u64>,
        graph: Out<u64>,
        dependencies: Out<In<u64>>,
        count: Out<usize>,
    ) {
        graph_so_far(stream, status, id, graph, dependencies, count)
    }

    fn cuStreamGetCaptureInfo_v3(
        stream: u64,
        status: Out<c_uint>,
        id: Out<u64>,
        graph: Out<u64>,
        dependencies: Out<In<u64>>,
        edges: Out<In<u64>>,
        count: Out<usize>,
    ) {
        edges.offer(In::null());
        graph_so_far(stream, status, id, graph, dependencies, count)
    }
}
