//! Streams: made, waited for, captured, and told to call functions of the host.

use std::ffi::{c_int, c_uint, c_void};

use crate::context::current;
use crate::driver::*;
use crate::last::runtime;
use crate::place::address;

runtime! {
    fn cudaStreamCreate(stream: *mut u64) {
        current()?;
        cuStreamCreate(stream, 0)
    }

    fn cudaStreamCreateWithFlags(stream: *mut u64, flags: c_uint) {
        current()?;
        cuStreamCreate(stream, flags)
    }

    fn cudaStreamCreateWithPriority(stream: *mut u64, flags: c_uint, priority: c_int) {
        current()?;
        cuStreamCreateWithPriority(stream, flags, priority)
    }

    fn cudaStreamDestroy(stream: u64) {
        current()?;
        cuStreamDestroy_v2(stream)
    }

    fn cudaStreamGetPriority(stream: u64, priority: *mut c_int) {
        current()?;
        cuStreamGetPriority(stream, priority)
    }

    fn cudaStreamGetFlags(stream: u64, flags: *mut c_uint) {
        current()?;
        cuStreamGetFlags(stream, flags)
    }

    fn cudaStreamGetId(stream: u64, id: *mut u64) {
        current()?;
        cuStreamGetId(stream, id)
    }

    fn cudaStreamGetDevice(stream: u64, device: *mut c_int) {
        current()?;
        cuStreamGetDevice(stream, device)
    }

    fn cudaStreamSynchronize(stream: u64) {
        current()?;
        cuStreamSynchronize(stream)
    }

    fn cudaStreamQuery(stream: u64) {
        current()?;
        cuStreamQuery(stream)
    }

    fn cudaStreamWaitEvent(stream: u64, event: u64, flags: c_uint) {
        current()?;
        cuStreamWaitEvent(stream, event, flags)
    }

    fn cudaStreamAddCallback(
        stream: u64,
        callback: StreamCallback,
        value: *mut c_void,
        flags: c_uint,
    ) {
        current()?;
        cuStreamAddCallback(stream, callback, value, flags)
    }

    fn cudaLaunchHostFunc(stream: u64, function: HostFunction, value: *mut c_void) {
        current()?;
        cuLaunchHostFunc(stream, function, value)
    }

    fn cudaStreamAttachMemAsync(stream: u64, at: *mut c_void, bytes: usize, flags: c_uint) {
        current()?;
        cuStreamAttachMemAsync(stream, address(at), bytes, flags)
    }

    fn cudaThreadExchangeStreamCaptureMode(mode: *mut c_uint) {
        current()?;
        cuThreadExchangeStreamCaptureMode(mode)
    }

    fn cudaStreamBeginCapture(stream: u64, mode: c_uint) {
        current()?;
        cuStreamBeginCapture_v2(stream, mode)
    }

    fn cudaStreamEndCapture(stream: u64, graph: *mut u64) {
        current()?;
        cuStreamEndCapture(stream, graph)
    }

    fn cudaStreamIsCapturing(stream: u64, status: *mut c_uint) {
        current()?;
        cuStreamIsCapturing(stream, status)
    }
}
