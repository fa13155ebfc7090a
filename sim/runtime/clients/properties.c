/* Every field of `cudaDeviceProp` as the headers lay it out, against the attribute it is. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

static int wrong;

static void is(const char *field, long long found, enum cudaDeviceAttr attribute)
{
    int value = -1;
    cudaError_t error = cudaDeviceGetAttribute(&value, attribute, 0);
    if (error != cudaSuccess || found != value) {
        printf("%s is %lld, the attribute %d\n", field, found, value);
        wrong = 1;
    }
}
#define IS(field, attribute) is(#field, (long long)of.field, cudaDevAttr##attribute)

int main(void)
{
    struct cudaDeviceProp of;
    memset(&of, 0xee, sizeof of);
    if (cudaGetDeviceProperties(&of, 0) != cudaSuccess) {
        return 1;
    }
    IS(sharedMemPerBlock, MaxSharedMemoryPerBlock);
    IS(regsPerBlock, MaxRegistersPerBlock);
    IS(warpSize, WarpSize);
    IS(memPitch, MaxPitch);
    IS(maxThreadsPerBlock, MaxThreadsPerBlock);
    IS(maxThreadsDim[0], MaxBlockDimX);
    IS(maxThreadsDim[2], MaxBlockDimZ);
    IS(maxGridSize[0], MaxGridDimX);
    IS(maxGridSize[2], MaxGridDimZ);
    IS(totalConstMem, TotalConstantMemory);
    IS(major, ComputeCapabilityMajor);
    IS(minor, ComputeCapabilityMinor);
    IS(textureAlignment, TextureAlignment);
    IS(texturePitchAlignment, TexturePitchAlignment);
    IS(multiProcessorCount, MultiProcessorCount);
    IS(integrated, Integrated);
    IS(canMapHostMemory, CanMapHostMemory);
    IS(maxTexture1D, MaxTexture1DWidth);
    IS(maxTexture2DLinear[2], MaxTexture2DLinearPitch);
    IS(maxSurfaceCubemapLayered[1], MaxSurfaceCubemapLayeredLayers);
    IS(surfaceAlignment, SurfaceAlignment);
    IS(concurrentKernels, ConcurrentKernels);
    IS(ECCEnabled, EccEnabled);
    IS(pciBusID, PciBusId);
    IS(asyncEngineCount, AsyncEngineCount);
    IS(unifiedAddressing, UnifiedAddressing);
    IS(memoryBusWidth, GlobalMemoryBusWidth);
    IS(l2CacheSize, L2CacheSize);
    IS(persistingL2CacheMaxSize, MaxPersistingL2CacheSize);
    IS(maxThreadsPerMultiProcessor, MaxThreadsPerMultiProcessor);
    IS(streamPrioritiesSupported, StreamPrioritiesSupported);
    IS(sharedMemPerMultiprocessor, MaxSharedMemoryPerMultiprocessor);
    IS(regsPerMultiprocessor, MaxRegistersPerMultiprocessor);
    IS(managedMemory, ManagedMemory);
    IS(multiGpuBoardGroupID, MultiGpuBoardGroupID);
    IS(concurrentManagedAccess, ConcurrentManagedAccess);
    IS(computePreemptionSupported, ComputePreemptionSupported);
    IS(cooperativeLaunch, CooperativeLaunch);
    IS(sharedMemPerBlockOptin, MaxSharedMemoryPerBlockOptin);
    IS(directManagedMemAccessFromHost, DirectManagedMemAccessFromHost);
    IS(maxBlocksPerMultiProcessor, MaxBlocksPerMultiprocessor);
    IS(accessPolicyMaxWindowSize, MaxAccessPolicyWindowSize);
    IS(reservedSharedMemPerBlock, ReservedSharedMemoryPerBlock);
    IS(hostRegisterSupported, HostRegisterSupported);
    IS(hostRegisterReadOnlySupported, HostRegisterReadOnlySupported);
    IS(memoryPoolsSupported, MemoryPoolsSupported);
    IS(clusterLaunch, ClusterLaunch);
#if CUDART_VERSION < 13000
    IS(clockRate, ClockRate);
    IS(deviceOverlap, GpuOverlap);
    IS(memoryClockRate, MemoryClockRate);
    IS(singleToDoublePrecisionPerfRatio, SingleToDoublePrecisionPerfRatio);
#else
    IS(deviceNumaConfig, NumaConfig);
    IS(hostNumaMultinodeIpcSupported, HostNumaMultinodeIpcSupported);
#endif
    if (of.reserved[0] != 0 || of.reserved[sizeof of.reserved / sizeof(int) - 1] != 0) {
        printf("what is reserved is not 0\n");
        wrong = 1;
    }
    return wrong;
}
