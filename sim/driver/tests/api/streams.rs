//! Streams, events, functions of the host, capture.

use std::ffi::c_void;
use std::ptr;

use crate::code::*;
use crate::driver::{ADD_ONE, Driver, call};

#[test]
fn streams_are_made_and_asked() {
    let driver = Driver::open();
    let (mut stream, mut priority, mut flags) = (0_u64, 7, 7_u32);
    assert_eq!(call!(driver, cuStreamCreateWithPriority(&mut stream, 1_u32, -99_i32)), SUCCESS);
    assert_eq!(call!(driver, cuStreamGetPriority(stream, &mut priority)), SUCCESS);
    assert_eq!(call!(driver, cuStreamGetFlags(stream, &mut flags)), SUCCESS);
    assert_eq!((priority, flags), (-5, 1));
    let (mut context, mut current) = (0_u64, 0_u64);
    assert_eq!(call!(driver, cuStreamGetCtx(stream, &mut context)), SUCCESS);
    assert_eq!(call!(driver, cuCtxGetCurrent(&mut current)), SUCCESS);
    assert_eq!(context, current);
    // The default streams: null, legacy, of the thread.
    for of in [0_u64, 1, 2, stream] {
        assert_eq!(call!(driver, cuStreamQuery(of)), SUCCESS, "{of}");
        assert_eq!(call!(driver, cuStreamSynchronize(of)), SUCCESS, "{of}");
    }
    assert_eq!(call!(driver, cuStreamSynchronize_ptsz(0_u64)), SUCCESS);
    assert_eq!(call!(driver, cuStreamDestroy_v2(stream)), SUCCESS);
    assert_eq!(call!(driver, cuStreamDestroy_v2(stream)), INVALID_HANDLE);
    assert_eq!(call!(driver, cuStreamDestroy_v2(2_u64)), INVALID_HANDLE);
    assert_eq!(call!(driver, cuStreamSynchronize(stream)), INVALID_HANDLE);
    assert_eq!(call!(driver, cuStreamCreate(&mut stream, 2_u32)), INVALID_VALUE);
}

#[test]
fn events_hold_times() {
    let driver = Driver::open();
    let event = |flags: u32| {
        let mut event = 0_u64;
        assert_eq!(call!(driver, cuEventCreate(&mut event, flags)), SUCCESS);
        event
    };
    let (start, end, timeless, mut passed) = (event(0), event(0), event(2), -1_f32);
    assert_eq!(call!(driver, cuEventElapsedTime(&mut passed, start, end)), INVALID_HANDLE);
    assert_eq!(call!(driver, cuEventQuery(start)), SUCCESS);
    for of in [start, timeless, end] {
        assert_eq!(call!(driver, cuEventRecord(of, 0_u64)), SUCCESS);
        assert_eq!(call!(driver, cuStreamWaitEvent(0_u64, of, 0_u32)), SUCCESS);
        assert_eq!(call!(driver, cuEventSynchronize(of)), SUCCESS);
    }
    assert_eq!(call!(driver, cuEventElapsedTime(&mut passed, start, end)), SUCCESS);
    assert!((0.0..1e4).contains(&passed), "{passed} ms");
    assert_eq!(call!(driver, cuEventElapsedTime_v2(&mut passed, start, timeless)), INVALID_HANDLE);
    for of in [start, timeless, end] {
        assert_eq!(call!(driver, cuEventDestroy_v2(of)), SUCCESS);
        assert_eq!(call!(driver, cuEventDestroy_v2(of)), INVALID_HANDLE);
    }
    let mut none = 0_u64;
    assert_eq!(call!(driver, cuEventCreate(&mut none, 4_u32)), INVALID_VALUE);
    assert_eq!(call!(driver, cuEventRecord(start, 0_u64)), INVALID_HANDLE);
}

extern "C" fn count(value: *mut c_void) {
    unsafe { *value.cast::<u32>() += 1 };
}

extern "C" fn told(stream: u64, status: u32, value: *mut c_void) {
    unsafe { *value.cast::<(u64, u32)>() = (stream, status) };
}

#[test]
fn functions_of_the_host_are_called() {
    let driver = Driver::open();
    let (stream, mut calls, mut heard) = (driver.stream(), 0_u32, (0_u64, 7_u32));
    let function: extern "C" fn(*mut c_void) = count;
    assert_eq!(call!(driver, cuLaunchHostFunc(stream, function, &mut calls)), SUCCESS);
    assert_eq!(calls, 1);
    let callback: extern "C" fn(u64, u32, *mut c_void) = told;
    assert_eq!(call!(driver, cuStreamAddCallback(stream, callback, &mut heard, 0_u32)), SUCCESS);
    assert_eq!(heard, (stream, 0));
    let null: *const c_void = ptr::null();
    assert_eq!(call!(driver, cuLaunchHostFunc(stream, null, null)), INVALID_VALUE);
    assert_eq!(call!(driver, cuStreamDestroy_v2(stream)), SUCCESS);
}

/// Kernels, copies, fills and functions of the host, replayed.
#[test]
fn what_is_captured_runs_when_the_graph_does() {
    let driver = Driver::open();
    let module = driver.load(ADD_ONE);
    let add_one = driver.kernel(module, "add_one");
    let (stream, other, address) = (driver.stream(), driver.stream(), driver.alloc(32));
    let (mut event, mut graph, mut exec, mut status) = (0_u64, 0_u64, 0_u64, 0_u32);
    let (mut calls, mut back) = (0_u32, [0_u32; 8]);
    let function: extern "C" fn(*mut c_void) = count;
    assert_eq!(call!(driver, cuEventCreate(&mut event, 0_u32)), SUCCESS);
    assert_eq!(call!(driver, cuStreamBeginCapture_v2(stream, 2_u32)), SUCCESS);
    assert_eq!(call!(driver, cuMemsetD32Async(address, 40_u32, 8_usize, stream)), SUCCESS);
    assert_eq!(driver.launch(add_one, 8, stream, &[address]), SUCCESS);
    // The other stream joins, by an event.
    assert_eq!(call!(driver, cuEventRecord(event, stream)), SUCCESS);
    assert_eq!(call!(driver, cuStreamWaitEvent(other, event, 0_u32)), SUCCESS);
    assert_eq!(driver.launch(add_one, 8, other, &[address]), SUCCESS);
    assert_eq!(call!(driver, cuStreamIsCapturing(other, &mut status)), SUCCESS);
    assert_eq!(status, 1);
    assert_eq!(call!(driver, cuEventRecord(event, other)), SUCCESS);
    assert_eq!(call!(driver, cuStreamWaitEvent(stream, event, 0_u32)), SUCCESS);
    let (to, bytes) = (back.as_mut_ptr(), 32_usize);
    assert_eq!(call!(driver, cuMemcpyDtoHAsync_v2(to, address, bytes, stream)), SUCCESS);
    assert_eq!(call!(driver, cuLaunchHostFunc(stream, function, &mut calls)), SUCCESS);
    assert_eq!(call!(driver, cuStreamEndCapture(other, &mut graph)), CAPTURE_UNMATCHED);
    assert_eq!(call!(driver, cuStreamEndCapture(stream, &mut graph)), SUCCESS);
    assert_eq!((calls, back), (0, [0; 8]));
    assert_eq!(call!(driver, cuGraphInstantiateWithFlags(&mut exec, graph, 0_u64)), SUCCESS);
    for round in 1..3 {
        assert_eq!(call!(driver, cuGraphLaunch(exec, stream)), SUCCESS);
        assert_eq!(unsafe { (&raw const calls).read_volatile() }, round);
        assert_eq!(unsafe { (&raw const back).read_volatile() }, [42; 8]);
    }
    assert_eq!(call!(driver, cuGraphExecDestroy(exec)), SUCCESS);
    assert_eq!(call!(driver, cuGraphDestroy(graph)), SUCCESS);
    assert_eq!(call!(driver, cuGraphLaunch(exec, stream)), INVALID_HANDLE);
    for of in [stream, other] {
        assert_eq!(call!(driver, cuStreamDestroy_v2(of)), SUCCESS);
    }
    assert_eq!(call!(driver, cuMemFree_v2(address)), SUCCESS);
}

#[test]
fn what_a_capture_forbids_ends_it() {
    let driver = Driver::open();
    let (stream, mut graph) = (driver.stream(), 0_u64);
    assert_eq!(call!(driver, cuStreamBeginCapture_v2(0_u64, 0_u32)), CAPTURE_UNSUPPORTED);
    assert_eq!(call!(driver, cuStreamBeginCapture_v2(stream, 9_u32)), INVALID_VALUE);
    assert_eq!(call!(driver, cuStreamEndCapture(stream, &mut graph)), ILLEGAL_STATE);
    let begin = || {
        assert_eq!(call!(driver, cuStreamBeginCapture_v2(stream, 0_u32)), SUCCESS);
    };
    let mut address = 0_u64;
    begin();
    assert_eq!(call!(driver, cuStreamBeginCapture_v2(stream, 0_u32)), ILLEGAL_STATE);
    assert_eq!(call!(driver, cuMemAlloc_v2(&mut address, 16_usize)), CAPTURE_UNSUPPORTED);
    assert_eq!(call!(driver, cuStreamEndCapture(stream, &mut graph)), CAPTURE_INVALIDATED);
    begin();
    assert_eq!(call!(driver, cuStreamSynchronize(stream)), CAPTURE_UNSUPPORTED);
    assert_eq!(call!(driver, cuStreamEndCapture(stream, &mut graph)), CAPTURE_INVALIDATED);
    begin();
    assert_eq!(call!(driver, cuMemsetD8_v2(address, 0_u8, 1_usize)), CAPTURE_IMPLICIT);
    assert_eq!(call!(driver, cuStreamEndCapture(stream, &mut graph)), CAPTURE_INVALIDATED);
    assert_eq!(call!(driver, cuStreamDestroy_v2(stream)), SUCCESS);
}

#[test]
fn graphs_keep_objects_alive() {
    let driver = Driver::open();
    let (mut graph, mut exec, mut object, mut ends) = (0_u64, 0_u64, 0_u64, 0_u32);
    let end: extern "C" fn(*mut c_void) = count;
    assert_eq!(call!(driver, cuGraphCreate(&mut graph, 0_u32)), SUCCESS);
    let ended = &raw mut ends;
    let make = |flags: u32, object: *mut u64| {
        call!(driver, cuUserObjectCreate(object, ended, end, 1_u32, flags))
    };
    assert_eq!(make(0, &mut object), INVALID_VALUE);
    assert_eq!(make(1, &mut object), SUCCESS);
    // The graph takes the only reference over, and what is made of it has its own.
    assert_eq!(call!(driver, cuGraphRetainUserObject(graph, object, 1_u32, 1_u32)), SUCCESS);
    assert_eq!(call!(driver, cuGraphInstantiateWithFlags(&mut exec, graph, 0_u64)), SUCCESS);
    assert_eq!(call!(driver, cuGraphDestroy(graph)), SUCCESS);
    assert_eq!(unsafe { ended.read_volatile() }, 0);
    assert_eq!(call!(driver, cuGraphExecDestroy(exec)), SUCCESS);
    assert_eq!(unsafe { ended.read_volatile() }, 1);
    assert_eq!(call!(driver, cuUserObjectRelease(object, 1_u32)), INVALID_VALUE);
}
