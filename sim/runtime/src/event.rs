//! Events.

use std::ffi::c_uint;

use crate::context::current;
use crate::driver::*;
use crate::last::runtime;

runtime! {
    fn cudaEventCreate(event: *mut u64) {
        current()?;
        cuEventCreate(event, 0)
    }

    fn cudaEventCreateWithFlags(event: *mut u64, flags: c_uint) {
        current()?;
        cuEventCreate(event, flags)
    }

    fn cudaEventRecord(event: u64, stream: u64) {
        current()?;
        cuEventRecordWithFlags(event, stream, 0)
    }

    fn cudaEventRecordWithFlags(event: u64, stream: u64, flags: c_uint) {
        current()?;
        cuEventRecordWithFlags(event, stream, flags)
    }

    fn cudaEventQuery(event: u64) {
        current()?;
        cuEventQuery(event)
    }

    fn cudaEventSynchronize(event: u64) {
        current()?;
        cuEventSynchronize(event)
    }

    fn cudaEventDestroy(event: u64) {
        current()?;
        cuEventDestroy_v2(event)
    }

    fn cudaEventElapsedTime(milliseconds: *mut f32, start: u64, end: u64) {
        current()?;
        cuEventElapsedTime(milliseconds, start, end)
    }

    // The name by which programs call it that were compiled for CUDA 12.8 and later.
    fn cudaEventElapsedTime_v2(milliseconds: *mut f32, start: u64, end: u64) {
        current()?;
        cuEventElapsedTime(milliseconds, start, end)
    }
}
