//! The functions that use the default stream of the calling thread.

use std::ffi::{c_int, c_uint, c_void};

use crate::copy::*;
use crate::driver::{HostFunction, StreamCallback};
use crate::event::*;
use crate::graph::*;
use crate::launch::*;
use crate::layout::{Config, Copy3dParams, Copy3dPeerParams, Dim3, Extent, Pitched};
use crate::memset::*;
use crate::own_stream::{PER_THREAD, own, per_thread};
use crate::pool::*;
use crate::stream::*;
use crate::symbol::*;

/// Memory to write, memory to read.
type To = *mut c_void;
type From = *const c_void;
type Values = *mut *mut c_void;

#[rustfmt::skip]
per_thread! {
    fn cudaMemcpy_ptds(to: To, from: From, bytes: usize, kind: c_int)
        = cudaMemcpyAsync(to, from, bytes, kind, PER_THREAD);
    fn cudaMemcpyAsync_ptsz(to: To, from: From, bytes: usize, kind: c_int, on: u64)
        = cudaMemcpyAsync(to, from, bytes, kind, own(on));
    fn cudaMemcpy2D_ptds(
        to: To, to_pitch: usize, from: From, from_pitch: usize, width: usize, height: usize,
        kind: c_int,
    ) = cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, PER_THREAD);
    fn cudaMemcpy2DAsync_ptsz(
        to: To, to_pitch: usize, from: From, from_pitch: usize, width: usize, height: usize,
        kind: c_int, on: u64,
    ) = cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, own(on));
    fn cudaMemcpy3D_ptds(params: *const Copy3dParams) = cudaMemcpy3DAsync(params, PER_THREAD);
    fn cudaMemcpy3DAsync_ptsz(params: *const Copy3dParams, on: u64)
        = cudaMemcpy3DAsync(params, own(on));
    fn cudaMemcpy3DPeer_ptds(params: *const Copy3dPeerParams)
        = cudaMemcpy3DPeerAsync(params, PER_THREAD);
    fn cudaMemcpy3DPeerAsync_ptsz(params: *const Copy3dPeerParams, on: u64)
        = cudaMemcpy3DPeerAsync(params, own(on));
    fn cudaMemcpyToSymbol_ptds(
        symbol: From, source: From, bytes: usize, offset: usize, kind: c_int,
    ) = cudaMemcpyToSymbolAsync(symbol, source, bytes, offset, kind, PER_THREAD);
    fn cudaMemcpyToSymbolAsync_ptsz(
        symbol: From, source: From, bytes: usize, offset: usize, kind: c_int, on: u64,
    ) = cudaMemcpyToSymbolAsync(symbol, source, bytes, offset, kind, own(on));
    fn cudaMemcpyFromSymbol_ptds(
        target: To, symbol: From, bytes: usize, offset: usize, kind: c_int,
    ) = cudaMemcpyFromSymbolAsync(target, symbol, bytes, offset, kind, PER_THREAD);
    fn cudaMemcpyFromSymbolAsync_ptsz(
        target: To, symbol: From, bytes: usize, offset: usize, kind: c_int, on: u64,
    ) = cudaMemcpyFromSymbolAsync(target, symbol, bytes, offset, kind, own(on));
    fn cudaMemset_ptds(at: To, value: c_int, bytes: usize)
        = cudaMemsetAsync(at, value, bytes, PER_THREAD);
    fn cudaMemsetAsync_ptsz(at: To, value: c_int, bytes: usize, on: u64)
        = cudaMemsetAsync(at, value, bytes, own(on));
    fn cudaMemset2D_ptds(at: To, pitch: usize, value: c_int, width: usize, height: usize)
        = cudaMemset2DAsync(at, pitch, value, width, height, PER_THREAD);
    fn cudaMemset2DAsync_ptsz(
        at: To, pitch: usize, value: c_int, width: usize, height: usize, on: u64,
    ) = cudaMemset2DAsync(at, pitch, value, width, height, own(on));
    fn cudaMemset3D_ptds(at: Pitched, value: c_int, extent: Extent)
        = cudaMemset3DAsync(at, value, extent, PER_THREAD);
    fn cudaMemset3DAsync_ptsz(at: Pitched, value: c_int, extent: Extent, on: u64)
        = cudaMemset3DAsync(at, value, extent, own(on));
    fn cudaMallocAsync_ptsz(to: *mut u64, bytes: usize, on: u64)
        = cudaMallocAsync(to, bytes, own(on));
    fn cudaMallocFromPoolAsync_ptsz(to: *mut u64, bytes: usize, pool: u64, on: u64)
        = cudaMallocFromPoolAsync(to, bytes, pool, own(on));
    fn cudaFreeAsync_ptsz(from: To, on: u64) = cudaFreeAsync(from, own(on));
    fn cudaStreamGetPriority_ptsz(on: u64, priority: *mut c_int)
        = cudaStreamGetPriority(own(on), priority);
    fn cudaStreamGetFlags_ptsz(on: u64, flags: *mut c_uint) = cudaStreamGetFlags(own(on), flags);
    fn cudaStreamGetId_ptsz(on: u64, id: *mut u64) = cudaStreamGetId(own(on), id);
    fn cudaStreamGetDevice_ptsz(on: u64, device: *mut c_int)
        = cudaStreamGetDevice(own(on), device);
    fn cudaStreamSynchronize_ptsz(on: u64) = cudaStreamSynchronize(own(on));
    fn cudaStreamQuery_ptsz(on: u64) = cudaStreamQuery(own(on));
    fn cudaStreamWaitEvent_ptsz(on: u64, event: u64, flags: c_uint)
        = cudaStreamWaitEvent(own(on), event, flags);
    fn cudaStreamAddCallback_ptsz(on: u64, callback: StreamCallback, value: To, flags: c_uint)
        = cudaStreamAddCallback(own(on), callback, value, flags);
    fn cudaStreamAttachMemAsync_ptsz(on: u64, at: To, bytes: usize, flags: c_uint)
        = cudaStreamAttachMemAsync(own(on), at, bytes, flags);
    fn cudaStreamBeginCapture_ptsz(on: u64, mode: c_uint) = cudaStreamBeginCapture(own(on), mode);
    fn cudaStreamEndCapture_ptsz(on: u64, graph: *mut u64) = cudaStreamEndCapture(own(on), graph);
    fn cudaStreamIsCapturing_ptsz(on: u64, status: *mut c_uint)
        = cudaStreamIsCapturing(own(on), status);
    fn cudaLaunchHostFunc_ptsz(on: u64, function: HostFunction, value: To)
        = cudaLaunchHostFunc(own(on), function, value);
    fn cudaEventRecord_ptsz(event: u64, on: u64) = cudaEventRecord(event, own(on));
    fn cudaEventRecordWithFlags_ptsz(event: u64, on: u64, flags: c_uint)
        = cudaEventRecordWithFlags(event, own(on), flags);
    fn cudaGraphInstantiateWithParams_ptsz(exec: *mut u64, graph: u64, params: To)
        = cudaGraphInstantiateWithParams(exec, graph, params);
    fn cudaGraphUpload_ptsz(exec: u64, on: u64) = cudaGraphUpload(exec, own(on));
    fn cudaGraphLaunch_ptsz(exec: u64, on: u64) = cudaGraphLaunch(exec, own(on));
    fn __cudaLaunchKernel_ptsz(
        of: From, grid: Dim3, block: Dim3, values: Values, shared_bytes: usize, on: u64,
    ) = __cudaLaunchKernel(of, grid, block, values, shared_bytes, own(on));
    fn cudaLaunchKernel_ptsz(
        of: From, grid: Dim3, block: Dim3, values: Values, shared_bytes: usize, on: u64,
    ) = cudaLaunchKernel(of, grid, block, values, shared_bytes, own(on));
    fn cudaLaunchCooperativeKernel_ptsz(
        of: From, grid: Dim3, block: Dim3, values: Values, shared_bytes: usize, on: u64,
    ) = cudaLaunchCooperativeKernel(of, grid, block, values, shared_bytes, own(on));
    fn cudaLaunchKernelExC_ptsz(config: *const Config, of: From, values: Values)
        = launch_on_own_stream(config, of, values);
}
