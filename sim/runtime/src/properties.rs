//! `cudaDeviceProp`, whose fields CUDA 13 has changed: what each holds, in the order of both.

use std::ffi::{c_int, c_void};

use crate::code::Outcome;
use crate::context::known;
use crate::driver::{
    cuDeviceGetAttribute, cuDeviceGetName, cuDeviceGetUuid_v2, cuDeviceTotalMem_v2,
};
use crate::last::runtime;
use crate::place::place;

/// Which versions of CUDA have a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    Always,
    Removed,
    Added,
}
use Since::{Added, Always, Removed};

/// What a field is.
enum Field {
    /// So many bytes of a text, of an identity, or of what is zero.
    Name(usize),
    Uuid,
    Zero(usize),
    /// All memory, as a `size_t`.
    Memory,
    /// Attributes of the device, by number, as `int`.
    Ints(&'static [u32]),
    /// An attribute as a `size_t`.
    Size(u32),
}
use Field::{Ints, Memory, Name, Size, Uuid, Zero};

/// The fields in their order.
#[rustfmt::skip]
const FIELDS: &[(Since, &str, Field)] = &[
    (Always, "name", Name(256)),
    (Always, "uuid", Uuid),
    (Always, "luid", Zero(8)),
    (Always, "luidDeviceNodeMask", Zero(4)),
    (Always, "totalGlobalMem", Memory),
    (Always, "sharedMemPerBlock", Size(8)),
    (Always, "regsPerBlock", Ints(&[12])),
    (Always, "warpSize", Ints(&[10])),
    (Always, "memPitch", Size(11)),
    (Always, "maxThreadsPerBlock", Ints(&[1])),
    (Always, "maxThreadsDim", Ints(&[2, 3, 4])),
    (Always, "maxGridSize", Ints(&[5, 6, 7])),
    (Removed, "clockRate", Ints(&[13])),
    (Always, "totalConstMem", Size(9)),
    (Always, "major", Ints(&[75])),
    (Always, "minor", Ints(&[76])),
    (Always, "textureAlignment", Size(14)),
    (Always, "texturePitchAlignment", Size(51)),
    (Removed, "deviceOverlap", Ints(&[15])),
    (Always, "multiProcessorCount", Ints(&[16])),
    (Removed, "kernelExecTimeoutEnabled", Ints(&[17])),
    (Always, "integrated", Ints(&[18])),
    (Always, "canMapHostMemory", Ints(&[19])),
    (Removed, "computeMode", Ints(&[20])),
    (Always, "maxTexture1D", Ints(&[21])),
    (Always, "maxTexture1DMipmap", Ints(&[77])),
    (Removed, "maxTexture1DLinear", Ints(&[69])),
    (Always, "maxTexture2D", Ints(&[22, 23])),
    (Always, "maxTexture2DMipmap", Ints(&[73, 74])),
    (Always, "maxTexture2DLinear", Ints(&[70, 71, 72])),
    (Always, "maxTexture2DGather", Ints(&[45, 46])),
    (Always, "maxTexture3D", Ints(&[24, 25, 26])),
    (Always, "maxTexture3DAlt", Ints(&[47, 48, 49])),
    (Always, "maxTextureCubemap", Ints(&[52])),
    (Always, "maxTexture1DLayered", Ints(&[42, 43])),
    (Always, "maxTexture2DLayered", Ints(&[27, 28, 29])),
    (Always, "maxTextureCubemapLayered", Ints(&[53, 54])),
    (Always, "maxSurface1D", Ints(&[55])),
    (Always, "maxSurface2D", Ints(&[56, 57])),
    (Always, "maxSurface3D", Ints(&[58, 59, 60])),
    (Always, "maxSurface1DLayered", Ints(&[61, 62])),
    (Always, "maxSurface2DLayered", Ints(&[63, 64, 65])),
    (Always, "maxSurfaceCubemap", Ints(&[66])),
    (Always, "maxSurfaceCubemapLayered", Ints(&[67, 68])),
    (Always, "surfaceAlignment", Size(30)),
    (Always, "concurrentKernels", Ints(&[31])),
    (Always, "ECCEnabled", Ints(&[32])),
    (Always, "pciBusID", Ints(&[33])),
    (Always, "pciDeviceID", Ints(&[34])),
    (Always, "pciDomainID", Ints(&[50])),
    (Always, "tccDriver", Ints(&[35])),
    (Always, "asyncEngineCount", Ints(&[40])),
    (Always, "unifiedAddressing", Ints(&[41])),
    (Removed, "memoryClockRate", Ints(&[36])),
    (Always, "memoryBusWidth", Ints(&[37])),
    (Always, "l2CacheSize", Ints(&[38])),
    (Always, "persistingL2CacheMaxSize", Ints(&[108])),
    (Always, "maxThreadsPerMultiProcessor", Ints(&[39])),
    (Always, "streamPrioritiesSupported", Ints(&[78])),
    (Always, "globalL1CacheSupported", Ints(&[79])),
    (Always, "localL1CacheSupported", Ints(&[80])),
    (Always, "sharedMemPerMultiprocessor", Size(81)),
    (Always, "regsPerMultiprocessor", Ints(&[82])),
    (Always, "managedMemory", Ints(&[83])),
    (Always, "isMultiGpuBoard", Ints(&[84])),
    (Always, "multiGpuBoardGroupID", Ints(&[85])),
    (Always, "hostNativeAtomicSupported", Ints(&[86])),
    (Removed, "singleToDoublePrecisionPerfRatio", Ints(&[87])),
    (Always, "pageableMemoryAccess", Ints(&[88])),
    (Always, "concurrentManagedAccess", Ints(&[89])),
    (Always, "computePreemptionSupported", Ints(&[90])),
    (Always, "canUseHostPointerForRegisteredMem", Ints(&[91])),
    (Always, "cooperativeLaunch", Ints(&[95])),
    (Removed, "cooperativeMultiDeviceLaunch", Ints(&[96])),
    (Always, "sharedMemPerBlockOptin", Size(97)),
    (Always, "pageableMemoryAccessUsesHostPageTables", Ints(&[100])),
    (Always, "directManagedMemAccessFromHost", Ints(&[101])),
    (Always, "maxBlocksPerMultiProcessor", Ints(&[106])),
    (Always, "accessPolicyMaxWindowSize", Ints(&[109])),
    (Always, "reservedSharedMemPerBlock", Size(111)),
    (Always, "hostRegisterSupported", Ints(&[99])),
    (Always, "sparseCudaArraySupported", Ints(&[112])),
    (Always, "hostRegisterReadOnlySupported", Ints(&[113])),
    (Always, "timelineSemaphoreInteropSupported", Ints(&[114])),
    (Always, "memoryPoolsSupported", Ints(&[115])),
    (Always, "gpuDirectRDMASupported", Ints(&[116])),
    (Always, "gpuDirectRDMAFlushWritesOptions", Ints(&[117])),
    (Always, "gpuDirectRDMAWritesOrdering", Ints(&[118])),
    (Always, "memoryPoolSupportedHandleTypes", Ints(&[119])),
    (Always, "deferredMappingCudaArraySupported", Ints(&[121])),
    (Always, "ipcEventSupported", Ints(&[125])),
    (Always, "clusterLaunch", Ints(&[120])),
    (Always, "unifiedFunctionPointers", Ints(&[129])),
    (Removed, "reserved", Zero(4 * 63)),
    (Added, "deviceNumaConfig", Ints(&[130])),
    (Added, "deviceNumaId", Ints(&[131])),
    (Added, "mpsEnabled", Ints(&[133])),
    (Added, "hostNumaId", Ints(&[134])),
    (Added, "gpuPciDeviceID", Ints(&[139])),
    (Added, "gpuPciSubsystemID", Ints(&[140])),
    (Added, "hostNumaMultinodeIpcSupported", Ints(&[143])),
    (Added, "reserved", Zero(4 * 56)),
];

/// The structure, which ends with padding to the alignment of a `size_t`.
fn properties(device: c_int, without: Since) -> Outcome<Vec<u8>> {
    let attribute = |which: u32| {
        let mut value = 0;
        cuDeviceGetAttribute(&mut value, which, device).map(|()| value)
    };
    let mut bytes = Vec::new();
    for (_, _, field) in FIELDS.iter().filter(|(since, ..)| *since != without) {
        match field {
            Name(room) => {
                let mut name = vec![0; *room];
                cuDeviceGetName(name.as_mut_ptr().cast(), *room as c_int, device)?;
                bytes.append(&mut name);
            }
            Uuid => {
                let mut uuid = [0; 16];
                cuDeviceGetUuid_v2(&mut uuid, device)?;
                bytes.extend(uuid);
            }
            Zero(count) => bytes.resize(bytes.len() + count, 0),
            Memory => {
                let mut all = 0;
                cuDeviceTotalMem_v2(&mut all, device)?;
                align(&mut bytes);
                bytes.extend(all.to_ne_bytes());
            }
            Ints(which) => {
                for which in *which {
                    bytes.extend(attribute(*which)?.to_ne_bytes());
                }
            }
            Size(which) => {
                let size = attribute(*which)? as usize;
                align(&mut bytes);
                bytes.extend(size.to_ne_bytes());
            }
        }
    }
    align(&mut bytes);
    Ok(bytes)
}

fn align(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(size_of::<usize>()), 0);
}

fn write(to: *mut c_void, device: c_int, without: Since) -> Outcome {
    known(device)?;
    place(to)?;
    let bytes = properties(device, without)?;
    // SAFETY: not null, so there is room for the structure of this version of CUDA.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(())
}

runtime! {
    // As programs have it that were compiled for CUDA 13.
    fn cudaGetDeviceProperties(to: *mut c_void, device: c_int) {
        write(to, device, Removed)
    }

    // The name by which programs call it that were compiled for CUDA 12.
    fn cudaGetDeviceProperties_v2(to: *mut c_void, device: c_int) {
        write(to, device, Added)
    }
}
