//! What the runtime refuses: arrays, textures and surfaces, graphs that are built node by node,
//! memory and objects of others, interfaces to graphics, and what is in no document.

use std::ffi::c_int;

use crate::code::{Code, Outcome};
use crate::last::finish;
use crate::layout::ChannelFormat;

/// Refuses a call, and says so: programs seldom tell which call it was.
fn refuse(name: &str) -> Outcome {
    eprintln!("kiln-sim-runtime: {name} is not supported");
    Err(Code::NOT_SUPPORTED)
}

/// Functions whose arguments are not looked at: who calls takes them back from the stack.
macro_rules! refused {
    ($($name:ident),* $(,)?) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> Code {
            finish(refuse(stringify!($name)))
        }
    )*};
}

/// A description is no array yet.
#[unsafe(no_mangle)]
pub extern "C" fn cudaCreateChannelDesc(
    x: c_int,
    y: c_int,
    z: c_int,
    w: c_int,
    kind: c_int,
) -> ChannelFormat {
    ChannelFormat { bits: [x, y, z, w], kind }
}

#[rustfmt::skip]
refused! {
    __cudaGetProcAddress, __cudaRegisterHostVar, __cudaRegisterUnifiedTable, cudaArrayGetInfo,
    cudaArrayGetMemoryRequirements, cudaArrayGetPlane, cudaArrayGetSparseProperties,
    cudaCreateSurfaceObject, cudaCreateTextureObject, cudaDestroyExternalMemory,
    cudaDestroyExternalSemaphore, cudaDestroySurfaceObject, cudaDestroyTextureObject,
    cudaDeviceFlushGPUDirectRDMAWrites, cudaDeviceGetGraphMemAttribute,
    cudaDeviceGetHostAtomicCapabilities, cudaDeviceGetNvSciSyncAttributes,
    cudaDeviceGetP2PAtomicCapabilities, cudaDeviceGetTexture1DLinearMaxWidth,
    cudaDeviceGraphMemTrim, cudaDeviceRegisterAsyncNotification, cudaDeviceSetGraphMemAttribute,
    cudaDeviceUnregisterAsyncNotification, cudaEGLStreamConsumerAcquireFrame,
    cudaEGLStreamConsumerConnect, cudaEGLStreamConsumerConnectWithFlags,
    cudaEGLStreamConsumerDisconnect, cudaEGLStreamConsumerReleaseFrame,
    cudaEGLStreamProducerConnect, cudaEGLStreamProducerDisconnect,
    cudaEGLStreamProducerPresentFrame, cudaEGLStreamProducerReturnFrame,
    cudaEventCreateFromEGLSync, cudaExternalMemoryGetMappedBuffer,
    cudaExternalMemoryGetMappedMipmappedArray, cudaFreeArray, cudaFreeMipmappedArray,
    cudaGLGetDevices, cudaGLMapBufferObject, cudaGLMapBufferObjectAsync,
    cudaGLRegisterBufferObject, cudaGLSetBufferObjectMapFlags, cudaGLSetGLDevice,
    cudaGLUnmapBufferObject, cudaGLUnmapBufferObjectAsync, cudaGLUnregisterBufferObject,
    cudaGetChannelDesc, cudaGetExportTable, cudaGetMipmappedArrayLevel,
    cudaGetSurfaceObjectResourceDesc, cudaGetTextureObjectResourceDesc,
    cudaGetTextureObjectResourceViewDesc, cudaGetTextureObjectTextureDesc,
    cudaGraphAddChildGraphNode, cudaGraphAddDependencies, cudaGraphAddDependencies_v2,
    cudaGraphAddEmptyNode, cudaGraphAddEventRecordNode, cudaGraphAddEventWaitNode,
    cudaGraphAddExternalSemaphoresSignalNode, cudaGraphAddExternalSemaphoresWaitNode,
    cudaGraphAddHostNode, cudaGraphAddKernelNode, cudaGraphAddMemAllocNode,
    cudaGraphAddMemFreeNode, cudaGraphAddMemcpyNode, cudaGraphAddMemcpyNode1D,
    cudaGraphAddMemcpyNodeFromSymbol, cudaGraphAddMemcpyNodeToSymbol, cudaGraphAddMemsetNode,
    cudaGraphAddNode, cudaGraphAddNode_v2, cudaGraphChildGraphNodeGetGraph,
    cudaGraphConditionalHandleCreate, cudaGraphDebugDotPrint, cudaGraphDestroyNode,
    cudaGraphEventRecordNodeGetEvent, cudaGraphEventRecordNodeSetEvent,
    cudaGraphEventWaitNodeGetEvent, cudaGraphEventWaitNodeSetEvent,
    cudaGraphExecChildGraphNodeSetParams, cudaGraphExecEventRecordNodeSetEvent,
    cudaGraphExecEventWaitNodeSetEvent, cudaGraphExecExternalSemaphoresSignalNodeSetParams,
    cudaGraphExecExternalSemaphoresWaitNodeSetParams, cudaGraphExecGetFlags,
    cudaGraphExecHostNodeSetParams, cudaGraphExecKernelNodeSetParams,
    cudaGraphExecMemcpyNodeSetParams, cudaGraphExecMemcpyNodeSetParams1D,
    cudaGraphExecMemcpyNodeSetParamsFromSymbol, cudaGraphExecMemcpyNodeSetParamsToSymbol,
    cudaGraphExecMemsetNodeSetParams, cudaGraphExecNodeSetParams, cudaGraphExecUpdate,
    cudaGraphExternalSemaphoresSignalNodeGetParams,
    cudaGraphExternalSemaphoresSignalNodeSetParams, cudaGraphExternalSemaphoresWaitNodeGetParams,
    cudaGraphExternalSemaphoresWaitNodeSetParams, cudaGraphGetEdges, cudaGraphGetEdges_v2,
    cudaGraphGetRootNodes, cudaGraphHostNodeGetParams, cudaGraphHostNodeSetParams,
    cudaGraphKernelNodeCopyAttributes, cudaGraphKernelNodeGetAttribute,
    cudaGraphKernelNodeGetParams, cudaGraphKernelNodeSetAttribute, cudaGraphKernelNodeSetParams,
    cudaGraphMemAllocNodeGetParams, cudaGraphMemFreeNodeGetParams, cudaGraphMemcpyNodeGetParams,
    cudaGraphMemcpyNodeSetParams, cudaGraphMemcpyNodeSetParams1D,
    cudaGraphMemcpyNodeSetParamsFromSymbol, cudaGraphMemcpyNodeSetParamsToSymbol,
    cudaGraphMemsetNodeGetParams, cudaGraphMemsetNodeSetParams, cudaGraphNodeFindInClone,
    cudaGraphNodeGetDependencies, cudaGraphNodeGetDependencies_v2, cudaGraphNodeGetDependentNodes,
    cudaGraphNodeGetDependentNodes_v2, cudaGraphNodeGetEnabled, cudaGraphNodeGetType,
    cudaGraphNodeSetEnabled, cudaGraphNodeSetParams, cudaGraphRemoveDependencies,
    cudaGraphRemoveDependencies_v2, cudaGraphicsEGLRegisterImage, cudaGraphicsGLRegisterBuffer,
    cudaGraphicsGLRegisterImage, cudaGraphicsMapResources, cudaGraphicsResourceGetMappedEglFrame,
    cudaGraphicsResourceGetMappedMipmappedArray, cudaGraphicsResourceGetMappedPointer,
    cudaGraphicsResourceSetMapFlags, cudaGraphicsSubResourceGetMappedArray,
    cudaGraphicsUnmapResources, cudaGraphicsUnregisterResource,
    cudaGraphicsVDPAURegisterOutputSurface, cudaGraphicsVDPAURegisterVideoSurface,
    cudaImportExternalMemory, cudaImportExternalSemaphore, cudaIpcCloseMemHandle,
    cudaIpcGetEventHandle, cudaIpcGetMemHandle, cudaIpcOpenEventHandle, cudaIpcOpenMemHandle,
    cudaLaunchCooperativeKernelMultiDevice, cudaLibraryGetUnifiedFunction, cudaLogsCurrent,
    cudaLogsDumpToFile, cudaLogsDumpToMemory, cudaLogsRegisterCallback,
    cudaLogsUnregisterCallback, cudaMalloc3DArray, cudaMallocArray, cudaMallocMipmappedArray,
    cudaMemDiscardAndPrefetchBatchAsync, cudaMemDiscardAndPrefetchBatchAsync_ptsz,
    cudaMemDiscardBatchAsync, cudaMemDiscardBatchAsync_ptsz, cudaMemGetDefaultMemPool,
    cudaMemGetMemPool, cudaMemPoolExportPointer, cudaMemPoolExportToShareableHandle,
    cudaMemPoolImportFromShareableHandle, cudaMemPoolImportPointer, cudaMemPrefetchBatchAsync,
    cudaMemPrefetchBatchAsync_ptsz, cudaMemRangeGetAttributes, cudaMemSetMemPool,
    cudaMemcpy2DArrayToArray, cudaMemcpy2DArrayToArray_ptds, cudaMemcpy2DFromArray,
    cudaMemcpy2DFromArrayAsync, cudaMemcpy2DFromArrayAsync_ptsz, cudaMemcpy2DFromArray_ptds,
    cudaMemcpy2DToArray, cudaMemcpy2DToArrayAsync, cudaMemcpy2DToArrayAsync_ptsz,
    cudaMemcpy2DToArray_ptds, cudaMemcpy3DBatchAsync, cudaMemcpy3DBatchAsync_ptsz,
    cudaMemcpyArrayToArray, cudaMemcpyArrayToArray_ptds, cudaMemcpyBatchAsync,
    cudaMemcpyBatchAsync_ptsz, cudaMemcpyFromArray, cudaMemcpyFromArrayAsync,
    cudaMemcpyFromArrayAsync_ptsz, cudaMemcpyFromArray_ptds, cudaMemcpyToArray,
    cudaMemcpyToArrayAsync, cudaMemcpyToArrayAsync_ptsz, cudaMemcpyToArray_ptds,
    cudaMipmappedArrayGetMemoryRequirements, cudaMipmappedArrayGetSparseProperties,
    cudaSetDoubleForDevice, cudaSetDoubleForHost, cudaSignalExternalSemaphoresAsync,
    cudaSignalExternalSemaphoresAsync_ptsz, cudaSignalExternalSemaphoresAsync_v2,
    cudaSignalExternalSemaphoresAsync_v2_ptsz, cudaStreamBeginCaptureToGraph,
    cudaStreamBeginCaptureToGraph_ptsz, cudaStreamCopyAttributes, cudaStreamCopyAttributes_ptsz,
    cudaStreamGetAttribute, cudaStreamGetAttribute_ptsz, cudaStreamSetAttribute,
    cudaStreamSetAttribute_ptsz, cudaStreamUpdateCaptureDependencies,
    cudaStreamUpdateCaptureDependencies_ptsz, cudaStreamUpdateCaptureDependencies_v2,
    cudaStreamUpdateCaptureDependencies_v2_ptsz, cudaVDPAUGetDevice, cudaVDPAUSetVDPAUDevice,
    cudaWaitExternalSemaphoresAsync, cudaWaitExternalSemaphoresAsync_ptsz,
    cudaWaitExternalSemaphoresAsync_v2, cudaWaitExternalSemaphoresAsync_v2_ptsz,
}
