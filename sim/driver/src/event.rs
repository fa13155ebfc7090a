//! Events.

use std::ffi::c_uint;

use cudarc::driver::sys::cudaError_enum::*;

use crate::machine::{MACHINE, driver};
use crate::objects::Event;
use crate::outcome::Outcome;
use crate::pointer::Out;
use crate::task::Task;

/// The event holds no time.
const DISABLE_TIMING: u32 = 2;
/// Between processes, which must not hold a time either.
const INTERPROCESS: u32 = 4;

fn record(event: u64, stream: u64, flags: c_uint) -> Outcome {
    if flags > 1 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut state = MACHINE.current()?;
    if !state.events.contains_key(&event) {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    let captured = state.streams.captured(stream)?.map(|capture| capture.id);
    if let Some(known) = state.events.get_mut(&event) {
        known.captured = captured;
    }
    // Within a capture it orders, and is no node, unless it was asked for as one.
    if captured.is_some() && flags == 0 {
        return Ok(());
    }
    drop(state);
    MACHINE.submit(stream, Task::Record(event))
}

fn elapsed(milliseconds: Out<f32>, start: u64, end: u64) -> Outcome {
    let state = MACHINE.current()?;
    let (Some(start), Some(end)) = (state.events.get(&start), state.events.get(&end)) else {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    };
    if (start.flags | end.flags) & DISABLE_TIMING != 0 {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    let (Some(start), Some(end)) = (start.recorded, end.recorded) else {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    };
    let forth = end.saturating_duration_since(start).as_secs_f32();
    milliseconds.put((forth - start.saturating_duration_since(end).as_secs_f32()) * 1e3)
}

fn known(event: u64) -> Outcome {
    match MACHINE.current()?.events.get(&event) {
        None => Err(CUDA_ERROR_INVALID_HANDLE),
        Some(event) if event.captured.is_some() => Err(CUDA_ERROR_CAPTURED_EVENT),
        Some(_) => Ok(()),
    }
}

driver! {
    fn cuEventCreate(event: Out<u64>, flags: c_uint) {
        let alone = flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0;
        if flags > 7 || alone || event.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut state = MACHINE.current()?;
        let handle = state.handle();
        state.events.insert(handle, Event { flags, ..Event::default() });
        event.put(handle)
    }

    fn cuEventRecord(event: u64, stream: u64) {
        record(event, stream, 0)
    }

    fn cuEventRecordWithFlags(event: u64, stream: u64, flags: c_uint) {
        record(event, stream, flags)
    }

    fn cuEventSynchronize(event: u64) {
        known(event)
    }

    fn cuEventQuery(event: u64) {
        known(event)
    }

    fn cuEventDestroy_v2(event: u64) {
        let removed = MACHINE.current()?.events.remove(&event);
        removed.map(drop).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    fn cuEventElapsedTime(milliseconds: Out<f32>, start: u64, end: u64) {
        elapsed(milliseconds, start, end)
    }

    fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: u64, end: u64) {
        elapsed(milliseconds, start, end)
    }
}
