//! What the driver refuses: textures and arrays, memory that is mapped page by page or shared
//! between processes, graphs that are built by hand but for conditional nodes, external objects,
//! green contexts.

use cudarc::driver::sys::CUresult;
use cudarc::driver::sys::cudaError_enum::CUDA_ERROR_NOT_SUPPORTED;

use crate::settings::tell;

/// Refuses a call, and says so if it is asked to.
fn refuse(name: &str) -> CUresult {
    tell(|| format!("{name} is not supported"));
    CUDA_ERROR_NOT_SUPPORTED
}

/// Functions whose arguments are not looked at: who calls takes them back from the stack.
macro_rules! refused {
    ($($name:ident),* $(,)?) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> CUresult {
            refuse(stringify!($name))
        }
    )*};
}

#[rustfmt::skip]
refused! {
    cuArray3DCreate_v2, cuArray3DGetDescriptor_v2, cuArrayCreate_v2, cuArrayDestroy,
    cuArrayGetDescriptor_v2, cuArrayGetMemoryRequirements, cuArrayGetPlane,
    cuArrayGetSparseProperties, cuCoredumpDeregisterCompleteCallback,
    cuCoredumpDeregisterStartCallback, cuCoredumpGetAttribute, cuCoredumpGetAttributeGlobal,
    cuCoredumpRegisterCompleteCallback, cuCoredumpRegisterStartCallback, cuCoredumpSetAttribute,
    cuCoredumpSetAttributeGlobal, cuCtxAttach, cuCtxDetach, cuCtxFromGreenCtx, cuCtxGetDevResource,
    cuCtxGetExecAffinity, cuCtxRecordEvent, cuCtxWaitEvent, cuDestroyExternalMemory,
    cuDestroyExternalSemaphore, cuDevResourceGenerateDesc, cuDevSmResourceSplit,
    cuDevSmResourceSplitByCount, cuDeviceGetCliqueCount, cuDeviceGetCliqueInfo,
    cuDeviceGetDevResource, cuDeviceGetFabricClusterUuid, cuDeviceGetGraphMemAttribute,
    cuDeviceGetHostAtomicCapabilities, cuDeviceGetP2PAtomicCapabilities, cuDeviceGraphMemTrim,
    cuDeviceRegisterAsyncNotification, cuDeviceSetGraphMemAttribute,
    cuDeviceUnregisterAsyncNotification, cuExternalMemoryGetMappedBuffer,
    cuExternalMemoryGetMappedMipmappedArray, cuFuncSetBlockShape, cuFuncSetSharedSize,
    cuGraphAddBatchMemOpNode, cuGraphAddChildGraphNode, cuGraphAddDependencies,
    cuGraphAddDependencies_v2, cuGraphAddEmptyNode, cuGraphAddEventRecordNode,
    cuGraphAddEventWaitNode, cuGraphAddExternalSemaphoresSignalNode,
    cuGraphAddExternalSemaphoresWaitNode, cuGraphAddHostNode, cuGraphAddKernelNode,
    cuGraphAddKernelNode_v2, cuGraphAddMemAllocNode, cuGraphAddMemFreeNode, cuGraphAddMemcpyNode,
    cuGraphAddMemsetNode, cuGraphAddNode, cuGraphAddNode_v3,
    cuGraphBatchMemOpNodeGetParams, cuGraphBatchMemOpNodeSetParams, cuGraphChildGraphNodeGetGraph,
    cuGraphDebugDotPrint, cuGraphDestroyNode,
    cuGraphEventRecordNodeGetEvent, cuGraphEventRecordNodeSetEvent, cuGraphEventWaitNodeGetEvent,
    cuGraphEventWaitNodeSetEvent, cuGraphExecBatchMemOpNodeSetParams,
    cuGraphExecChildGraphNodeSetParams, cuGraphExecEventRecordNodeSetEvent,
    cuGraphExecEventWaitNodeSetEvent, cuGraphExecExternalSemaphoresSignalNodeSetParams,
    cuGraphExecExternalSemaphoresWaitNodeSetParams, cuGraphExecGetFlags, cuGraphExecGetId,
    cuGraphExecHostNodeSetParams, cuGraphExecKernelNodeSetParams,
    cuGraphExecKernelNodeSetParams_v2, cuGraphExecMemcpyNodeSetParams,
    cuGraphExecMemsetNodeSetParams, cuGraphExecNodeSetParams, cuGraphExecUpdate,
    cuGraphExecUpdate_v2, cuGraphExternalSemaphoresSignalNodeGetParams,
    cuGraphExternalSemaphoresSignalNodeSetParams, cuGraphExternalSemaphoresWaitNodeGetParams,
    cuGraphExternalSemaphoresWaitNodeSetParams, cuGraphGetEdges, cuGraphGetEdges_v2, cuGraphGetId,
    cuGraphGetRootNodes, cuGraphHostNodeGetParams, cuGraphHostNodeSetParams, cuGraphInstantiate_v2,
    cuGraphKernelNodeCopyAttributes, cuGraphKernelNodeGetAttribute, cuGraphKernelNodeGetParams,
    cuGraphKernelNodeGetParams_v2, cuGraphKernelNodeSetAttribute, cuGraphKernelNodeSetParams,
    cuGraphKernelNodeSetParams_v2, cuGraphMemAllocNodeGetParams, cuGraphMemFreeNodeGetParams,
    cuGraphMemcpyNodeGetParams, cuGraphMemcpyNodeSetParams, cuGraphMemsetNodeGetParams,
    cuGraphMemsetNodeSetParams, cuGraphNodeFindInClone, cuGraphNodeGetContainingGraph,
    cuGraphNodeGetDependencies, cuGraphNodeGetDependencies_v2, cuGraphNodeGetDependentNodes,
    cuGraphNodeGetDependentNodes_v2, cuGraphNodeGetEnabled, cuGraphNodeGetLocalId,
    cuGraphNodeGetParams, cuGraphNodeGetToolsId, cuGraphNodeGetType, cuGraphNodeSetEnabled,
    cuGraphNodeSetParams, cuGraphNodeSetParams_v2, cuGraphRemoveDependencies,
    cuGraphRemoveDependencies_v2, cuGraphicsMapResources,
    cuGraphicsResourceGetMappedMipmappedArray, cuGraphicsResourceGetMappedPointer_v2,
    cuGraphicsResourceSetMapFlags_v2, cuGraphicsSubResourceGetMappedArray,
    cuGraphicsUnmapResources, cuGraphicsUnregisterResource, cuGreenCtxCreate, cuGreenCtxDestroy,
    cuGreenCtxGetDevResource, cuGreenCtxGetId, cuGreenCtxRecordEvent, cuGreenCtxStreamCreate,
    cuGreenCtxWaitEvent, cuImportExternalMemory, cuImportExternalSemaphore, cuIpcCloseMemHandle,
    cuIpcGetEventHandle, cuIpcGetMemHandle, cuIpcOpenEventHandle, cuIpcOpenMemHandle_v2, cuLaunch,
    cuLaunchCooperativeKernelMultiDevice, cuLaunchGrid, cuLaunchGridAsync, cuLaunchHostFunc_v2,
    cuLibraryGetUnifiedFunction, cuLogicalEndpointAddDevice, cuLogicalEndpointBindAddr,
    cuLogicalEndpointBindMem, cuLogicalEndpointCreate, cuLogicalEndpointDestroy,
    cuLogicalEndpointExport, cuLogicalEndpointGetLimits, cuLogicalEndpointIdRelease,
    cuLogicalEndpointIdReserve, cuLogicalEndpointImport, cuLogicalEndpointQuery,
    cuLogicalEndpointUnbind, cuLogsCurrent, cuLogsDumpToFile, cuLogsDumpToMemory,
    cuLogsRegisterCallback, cuLogsUnregisterCallback, cuMemAddressFree, cuMemAddressReserve,
    cuMemBatchDecompressAsync, cuMemCreate, cuMemDiscardAndPrefetchBatchAsync,
    cuMemDiscardBatchAsync, cuMemExportToShareableHandle, cuMemGetAccess,
    cuMemGetAllocationGranularity, cuMemGetAllocationPropertiesFromHandle, cuMemGetDefaultMemPool,
    cuMemGetHandleForAddressRange, cuMemGetLocationInfo, cuMemGetMemPool,
    cuMemImportFromShareableHandle, cuMemMap, cuMemMapArrayAsync, cuMemPoolExportPointer,
    cuMemPoolExportToShareableHandle, cuMemPoolImportFromShareableHandle, cuMemPoolImportPointer,
    cuMemPrefetchBatchAsync, cuMemRangeGetAttributes, cuMemRelease, cuMemRetainAllocationHandle,
    cuMemSetAccess, cuMemSetMemPool, cuMemUnmap, cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_v2,
    cuMemcpy3DWithAttributesAsync, cuMemcpyAtoA_v2, cuMemcpyAtoD_v2, cuMemcpyAtoHAsync_v2,
    cuMemcpyAtoH_v2, cuMemcpyBatchAsync, cuMemcpyBatchAsync_v2, cuMemcpyDtoA_v2,
    cuMemcpyHtoAAsync_v2, cuMemcpyHtoA_v2, cuMemcpyWithAttributesAsync, cuMipmappedArrayCreate,
    cuMipmappedArrayDestroy, cuMipmappedArrayGetLevel, cuMipmappedArrayGetMemoryRequirements,
    cuMipmappedArrayGetSparseProperties, cuModuleGetSurfRef, cuModuleGetTexRef,
    cuMulticastAddDevice, cuMulticastBindAddr, cuMulticastBindAddr_v2, cuMulticastBindMem,
    cuMulticastBindMem_v2, cuMulticastCreate, cuMulticastGetGranularity, cuMulticastUnbind,
    cuParamSetSize, cuParamSetTexRef, cuParamSetf, cuParamSeti, cuParamSetv,
    cuSignalExternalSemaphoresAsync, cuStreamBatchMemOp, cuStreamBatchMemOp_v2,
    cuStreamBeginCaptureToCig, cuStreamBeginRecaptureToGraph,
    cuStreamCopyAttributes, cuStreamEndCaptureToCig, cuStreamGetAttribute, cuStreamGetDevResource,
    cuStreamGetGreenCtx, cuStreamSetAttribute, cuStreamUpdateCaptureDependencies,
    cuStreamWaitValue32, cuStreamWaitValue32_v2,
    cuStreamWaitValue64, cuStreamWaitValue64_v2, cuStreamWriteValue32, cuStreamWriteValue32_v2,
    cuStreamWriteValue64, cuStreamWriteValue64_v2, cuSurfObjectCreate, cuSurfObjectDestroy,
    cuSurfObjectGetResourceDesc, cuSurfRefGetArray, cuSurfRefSetArray,
    cuTensorMapEncodeIm2colWide, cuTensorMapReplaceAddress, cuTexObjectCreate, cuTexObjectDestroy,
    cuTexObjectGetResourceDesc, cuTexObjectGetResourceViewDesc, cuTexObjectGetTextureDesc,
    cuTexRefCreate, cuTexRefDestroy, cuTexRefGetAddressMode, cuTexRefGetAddress_v2,
    cuTexRefGetArray, cuTexRefGetBorderColor, cuTexRefGetFilterMode, cuTexRefGetFlags,
    cuTexRefGetFormat, cuTexRefGetMaxAnisotropy, cuTexRefGetMipmapFilterMode,
    cuTexRefGetMipmapLevelBias, cuTexRefGetMipmapLevelClamp, cuTexRefGetMipmappedArray,
    cuTexRefSetAddress2D_v3, cuTexRefSetAddressMode, cuTexRefSetAddress_v2, cuTexRefSetArray,
    cuTexRefSetBorderColor, cuTexRefSetFilterMode, cuTexRefSetFlags, cuTexRefSetFormat,
    cuTexRefSetMaxAnisotropy, cuTexRefSetMipmapFilterMode, cuTexRefSetMipmapLevelBias,
    cuTexRefSetMipmapLevelClamp, cuTexRefSetMipmappedArray, cuWaitExternalSemaphoresAsync,
}
