//! The functions whose default stream is that of the calling thread, as programs have them that
//! are compiled for it: `_ptds` where the function takes no stream, `_ptsz` where it takes one.

use std::ffi::{c_int, c_uchar, c_uint, c_ushort};

use cudarc::driver::sys::CUresult;

use crate::capture::PER_THREAD;
use crate::pointer::{Host, In, Out};
use crate::transfer::{Copy2d, Copy3d};
use crate::{event, function, graph, memory, memset, pool, stream, transfer};

/// The stream that is meant by a handle.
fn own(stream: u64) -> u64 {
    if stream == 0 { PER_THREAD } else { stream }
}

macro_rules! per_thread {
    ($(
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) = $($call:ident)::+($($given:expr),*);
    )*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($arg: $type),*) -> CUresult {
            $($call)::+($($given),*)
        }
    )*};
}

#[rustfmt::skip]
per_thread! {
    fn cuMemcpy_ptds(to: u64, from: u64, bytes: usize)
        = transfer::cuMemcpyAsync(to, from, bytes, PER_THREAD);
    fn cuMemcpyAsync_ptsz(to: u64, from: u64, bytes: usize, at: u64)
        = transfer::cuMemcpyAsync(to, from, bytes, own(at));
    fn cuMemcpyHtoD_v2_ptds(to: u64, from: Host, bytes: usize)
        = transfer::cuMemcpyHtoDAsync_v2(to, from, bytes, PER_THREAD);
    fn cuMemcpyHtoDAsync_v2_ptsz(to: u64, from: Host, bytes: usize, at: u64)
        = transfer::cuMemcpyHtoDAsync_v2(to, from, bytes, own(at));
    fn cuMemcpyDtoH_v2_ptds(to: Host, from: u64, bytes: usize)
        = transfer::cuMemcpyDtoHAsync_v2(to, from, bytes, PER_THREAD);
    fn cuMemcpyDtoHAsync_v2_ptsz(to: Host, from: u64, bytes: usize, at: u64)
        = transfer::cuMemcpyDtoHAsync_v2(to, from, bytes, own(at));
    fn cuMemcpyDtoD_v2_ptds(to: u64, from: u64, bytes: usize)
        = transfer::cuMemcpyDtoDAsync_v2(to, from, bytes, PER_THREAD);
    fn cuMemcpyDtoDAsync_v2_ptsz(to: u64, from: u64, bytes: usize, at: u64)
        = transfer::cuMemcpyDtoDAsync_v2(to, from, bytes, own(at));
    fn cuMemcpyPeer_ptds(to: u64, to_of: u64, from: u64, from_of: u64, bytes: usize)
        = transfer::cuMemcpyPeerAsync(to, to_of, from, from_of, bytes, PER_THREAD);
    fn cuMemcpyPeerAsync_ptsz(to: u64, to_of: u64, from: u64, from_of: u64, bytes: usize, at: u64)
        = transfer::cuMemcpyPeerAsync(to, to_of, from, from_of, bytes, own(at));
    fn cuMemcpy2D_v2_ptds(copy: In<Copy2d>) = transfer::cuMemcpy2DAsync_v2(copy, PER_THREAD);
    fn cuMemcpy2DUnaligned_v2_ptds(copy: In<Copy2d>)
        = transfer::cuMemcpy2DAsync_v2(copy, PER_THREAD);
    fn cuMemcpy2DAsync_v2_ptsz(copy: In<Copy2d>, at: u64)
        = transfer::cuMemcpy2DAsync_v2(copy, own(at));
    fn cuMemcpy3D_v2_ptds(copy: In<Copy3d>) = transfer::cuMemcpy3DAsync_v2(copy, PER_THREAD);
    fn cuMemcpy3DAsync_v2_ptsz(copy: In<Copy3d>, at: u64)
        = transfer::cuMemcpy3DAsync_v2(copy, own(at));
    fn cuMemcpy3DPeer_ptds(copy: In<Copy3d>) = transfer::cuMemcpy3DPeerAsync(copy, PER_THREAD);
    fn cuMemcpy3DPeerAsync_ptsz(copy: In<Copy3d>, at: u64)
        = transfer::cuMemcpy3DPeerAsync(copy, own(at));
    fn cuMemsetD8_v2_ptds(at: u64, value: c_uchar, count: usize)
        = memset::cuMemsetD8Async(at, value, count, PER_THREAD);
    fn cuMemsetD8Async_ptsz(at: u64, value: c_uchar, count: usize, on: u64)
        = memset::cuMemsetD8Async(at, value, count, own(on));
    fn cuMemsetD16_v2_ptds(at: u64, value: c_ushort, count: usize)
        = memset::cuMemsetD16Async(at, value, count, PER_THREAD);
    fn cuMemsetD16Async_ptsz(at: u64, value: c_ushort, count: usize, on: u64)
        = memset::cuMemsetD16Async(at, value, count, own(on));
    fn cuMemsetD32_v2_ptds(at: u64, value: c_uint, count: usize)
        = memset::cuMemsetD32Async(at, value, count, PER_THREAD);
    fn cuMemsetD32Async_ptsz(at: u64, value: c_uint, count: usize, on: u64)
        = memset::cuMemsetD32Async(at, value, count, own(on));
    fn cuMemsetD2D8_v2_ptds(at: u64, pitch: usize, value: c_uchar, width: usize, height: usize)
        = memset::cuMemsetD2D8Async(at, pitch, value, width, height, PER_THREAD);
    fn cuMemsetD2D8Async_ptsz(
        at: u64, pitch: usize, value: c_uchar, width: usize, height: usize, on: u64,
    ) = memset::cuMemsetD2D8Async(at, pitch, value, width, height, own(on));
    fn cuMemsetD2D16_v2_ptds(at: u64, pitch: usize, value: c_ushort, width: usize, height: usize)
        = memset::cuMemsetD2D16Async(at, pitch, value, width, height, PER_THREAD);
    fn cuMemsetD2D16Async_ptsz(
        at: u64, pitch: usize, value: c_ushort, width: usize, height: usize, on: u64,
    ) = memset::cuMemsetD2D16Async(at, pitch, value, width, height, own(on));
    fn cuMemsetD2D32_v2_ptds(at: u64, pitch: usize, value: c_uint, width: usize, height: usize)
        = memset::cuMemsetD2D32Async(at, pitch, value, width, height, PER_THREAD);
    fn cuMemsetD2D32Async_ptsz(
        at: u64, pitch: usize, value: c_uint, width: usize, height: usize, on: u64,
    ) = memset::cuMemsetD2D32Async(at, pitch, value, width, height, own(on));
    fn cuMemAllocAsync_ptsz(address: Out<u64>, bytes: usize, at: u64)
        = pool::cuMemAllocAsync(address, bytes, own(at));
    fn cuMemAllocFromPoolAsync_ptsz(address: Out<u64>, bytes: usize, from: u64, at: u64)
        = pool::cuMemAllocFromPoolAsync(address, bytes, from, own(at));
    fn cuMemFreeAsync_ptsz(address: u64, at: u64) = pool::cuMemFreeAsync(address, own(at));
    fn cuMemPrefetchAsync_ptsz(address: u64, bytes: usize, device: c_int, at: u64)
        = memory::cuMemPrefetchAsync(address, bytes, device, own(at));
    fn cuStreamGetPriority_ptsz(at: u64, priority: Out<c_int>)
        = stream::cuStreamGetPriority(own(at), priority);
    fn cuStreamGetFlags_ptsz(at: u64, flags: Out<c_uint>)
        = stream::cuStreamGetFlags(own(at), flags);
    fn cuStreamGetId_ptsz(at: u64, id: Out<u64>) = stream::cuStreamGetId(own(at), id);
    fn cuStreamGetDevice_ptsz(at: u64, device: Out<c_int>)
        = stream::cuStreamGetDevice(own(at), device);
    fn cuStreamGetCtx_ptsz(at: u64, of: Out<u64>) = stream::cuStreamGetCtx(own(at), of);
    fn cuStreamGetCtx_v2_ptsz(at: u64, of: Out<u64>, green: Out<u64>)
        = stream::cuStreamGetCtx_v2(own(at), of, green);
    fn cuStreamWaitEvent_ptsz(at: u64, event: u64, flags: c_uint)
        = stream::cuStreamWaitEvent(own(at), event, flags);
    fn cuStreamAddCallback_ptsz(at: u64, callback: stream::Callback, value: Host, flags: c_uint)
        = stream::cuStreamAddCallback(own(at), callback, value, flags);
    fn cuLaunchHostFunc_ptsz(at: u64, function: stream::HostFunction, value: Host)
        = stream::cuLaunchHostFunc(own(at), function, value);
    fn cuStreamAttachMemAsync_ptsz(at: u64, address: u64, bytes: usize, flags: c_uint)
        = stream::cuStreamAttachMemAsync(own(at), address, bytes, flags);
    fn cuStreamQuery_ptsz(at: u64) = stream::cuStreamQuery(own(at));
    fn cuStreamSynchronize_ptsz(at: u64) = stream::cuStreamSynchronize(own(at));
    fn cuStreamBeginCapture_v2_ptsz(at: u64, mode: c_uint)
        = stream::cuStreamBeginCapture_v2(own(at), mode);
    fn cuStreamEndCapture_ptsz(at: u64, to: Out<u64>) = stream::cuStreamEndCapture(own(at), to);
    fn cuStreamIsCapturing_ptsz(at: u64, status: Out<c_uint>)
        = stream::cuStreamIsCapturing(own(at), status);
    fn cuStreamGetCaptureInfo_ptsz(at: u64, status: Out<c_uint>, id: Out<u64>)
        = stream::cuStreamGetCaptureInfo(own(at), status, id);
    fn cuStreamGetCaptureInfo_v2_ptsz(
        at: u64,
        status: Out<c_uint>,
        id: Out<u64>,
        graph: Out<u64>,
        dependencies: Out<In<u64>>,
        count: Out<usize>,
    ) = stream::cuStreamGetCaptureInfo_v2(own(at), status, id, graph, dependencies, count);
    fn cuStreamGetCaptureInfo_v3_ptsz(
        at: u64,
        status: Out<c_uint>,
        id: Out<u64>,
        graph: Out<u64>,
        dependencies: Out<In<u64>>,
        edges: Out<In<u64>>,
        count: Out<usize>,
    ) = stream::cuStreamGetCaptureInfo_v3(own(at), status, id, graph, dependencies, edges, count);
    fn cuEventRecord_ptsz(of: u64, at: u64) = event::cuEventRecord(of, own(at));
    fn cuEventRecordWithFlags_ptsz(of: u64, at: u64, flags: c_uint)
        = event::cuEventRecordWithFlags(of, own(at), flags);
    fn cuGraphUpload_ptsz(exec: u64, at: u64) = graph::cuGraphUpload(exec, own(at));
    fn cuGraphLaunch_ptsz(exec: u64, at: u64) = graph::cuGraphLaunch(exec, own(at));
    fn cuLaunchKernel_ptsz(
        of: u64,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        at: u64,
        values: In<Host>,
        extra: In<Host>,
    ) = function::cuLaunchKernel(
        of, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, own(at), values, extra
    );
    fn cuLaunchCooperativeKernel_ptsz(
        of: u64,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        at: u64,
        values: In<Host>,
    ) = function::cuLaunchCooperativeKernel(
        of, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, own(at), values
    );
}
