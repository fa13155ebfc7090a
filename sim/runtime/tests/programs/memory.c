/* Memory of every kind, copies in every direction, fills, and what pointers are to. */
#include "runtime_api.h"

static void of_the_device(void)
{
    void *none = &none, *at = NULL;
    WORKS(cudaMalloc(&none, 0));
    HOLDS(none == NULL);
    WORKS(cudaFree(NULL));
    GIVES(cudaErrorInvalidValue, cudaMalloc(NULL, 4));
    GIVES(cudaErrorMemoryAllocation, cudaMalloc(&at, (size_t)1 << 60));
    unsigned char from[257], back[257];
    for (int i = 0; i < 257; i++) {
        from[i] = (unsigned char)(i * 7);
    }
    size_t sizes[] = {1, 3, 4, 255, 256, 257};
    for (int i = 0; i < 6; i++) {
        void *copy;
        size_t bytes = sizes[i];
        WORKS(cudaMalloc(&at, bytes));
        WORKS(cudaMalloc(&copy, bytes));
        WORKS(cudaMemcpy(at, from, bytes, cudaMemcpyHostToDevice));
        WORKS(cudaMemcpy(copy, at, bytes, cudaMemcpyDeviceToDevice));
        memset(back, 0, sizeof back);
        WORKS(cudaMemcpy(back, copy, bytes, i % 2 ? cudaMemcpyDefault : cudaMemcpyDeviceToHost));
        HOLDS(memcmp(back, from, bytes) == 0 && (bytes == 257 || back[bytes] == 0));
        GIVES(cudaErrorInvalidValue, cudaMemcpy(at, from, bytes + 1, cudaMemcpyHostToDevice));
        WORKS(cudaFree(copy));
        WORKS(cudaFree(at));
    }
    WORKS(cudaMemcpy(NULL, NULL, 0, cudaMemcpyHostToDevice));
    WORKS(cudaMemcpy(back, from, 9, cudaMemcpyHostToHost));
    HOLDS(memcmp(back, from, 9) == 0);
    /* The sides must be those that are named. */
    WORKS(cudaMalloc(&at, 16));
    GIVES(cudaErrorInvalidValue, cudaMemcpy(from, at, 16, cudaMemcpyHostToDevice));
    GIVES(cudaErrorInvalidValue, cudaMemcpy(at, from, 16, cudaMemcpyDeviceToHost));
    GIVES(cudaErrorInvalidValue, cudaMemcpy(at, from, 16, cudaMemcpyDeviceToDevice));
    GIVES(cudaErrorInvalidValue, cudaMemcpy(from, at, 16, cudaMemcpyHostToHost));
    GIVES(cudaErrorInvalidMemcpyDirection, cudaMemcpy(at, from, 16, 5));
    GIVES(cudaErrorInvalidMemcpyDirection, cudaMemcpy(at, from, 16, -1));
    WORKS(cudaFree(at));
    GIVES(cudaErrorInvalidValue, cudaFree(at));
    GIVES(cudaErrorInvalidValue, cudaFree(from));
    size_t free, total, less;
    WORKS(cudaMemGetInfo(&free, &total));
    WORKS(cudaMalloc(&at, 1 << 20));
    WORKS(cudaMemGetInfo(&less, &total));
    HOLDS(free - less == 1 << 20 && free <= total);
    WORKS(cudaFree(at));
}

static void of_both_sides(void)
{
    /* Managed and pinned memory is the host's at the same address. */
    int *managed, *pinned, *seen, registered[3] = {1, 2, 3};
    WORKS(cudaMallocManaged((void **)&managed, 4 * sizeof(int), 1));
    WORKS(cudaMallocHost((void **)&pinned, 4 * sizeof(int)));
    GIVES(cudaErrorInvalidValue, cudaMallocManaged((void **)&seen, 0, 1));
    for (int i = 0; i < 4; i++) {
        managed[i] = 10 + i;
    }
    WORKS(cudaMemcpy(pinned, managed, 16, cudaMemcpyDeviceToHost));
    HOLDS(pinned[0] == 10 && pinned[3] == 13);
    WORKS(cudaMemset(managed, 0xff, 8));
    HOLDS(managed[0] == -1 && managed[1] == -1 && managed[2] == 12);
    cudaMemLocation here = {1, 0};
    WORKS(cudaMemAdvise(managed, 16, 1, here));
    WORKS(cudaHostGetDevicePointer((void **)&seen, pinned, 0));
    HOLDS(seen == pinned);
    WORKS(cudaHostRegister(registered, sizeof registered, 0));
    WORKS(cudaHostGetDevicePointer((void **)&seen, registered, 0));
    cudaPointerAttributes of;
    struct { const void *at; int type; } kinds[] = {
        {managed, cudaMemoryTypeManaged}, {pinned + 1, cudaMemoryTypeHost},
        {registered, cudaMemoryTypeHost}, {&of, cudaMemoryTypeUnregistered},
    };
    for (int i = 0; i < 4; i++) {
        WORKS(cudaPointerGetAttributes(&of, kinds[i].at));
        HOLDS(of.type == kinds[i].type);
        HOLDS(of.hostPointer == kinds[i].at);
        HOLDS(of.device == (of.type == cudaMemoryTypeUnregistered ? -2 : 0));
        HOLDS((of.devicePointer == NULL) == (of.type == cudaMemoryTypeUnregistered));
    }
    void *device;
    WORKS(cudaMalloc(&device, 4));
    WORKS(cudaPointerGetAttributes(&of, device));
    HOLDS(of.type == cudaMemoryTypeDevice && of.devicePointer == device && !of.hostPointer);
    WORKS(cudaFree(device));
    WORKS(cudaHostUnregister(registered));
    WORKS(cudaFreeHost(pinned));
    WORKS(cudaFreeHost(NULL));
    WORKS(cudaFree(managed));
}

static void in_two_and_three_dimensions(void)
{
    unsigned char from[4][12], back[4][12];
    for (int i = 0; i < 48; i++) {
        from[i / 12][i % 12] = (unsigned char)i;
    }
    memset(back, 0xee, sizeof back);
    void *at;
    size_t pitch;
    WORKS(cudaMallocPitch(&at, &pitch, 10, 4));
    HOLDS(pitch >= 10 && pitch % 512 == 0);
    WORKS(cudaMemcpy2D(at, pitch, from, 12, 10, 4, cudaMemcpyHostToDevice));
    WORKS(cudaMemset2D((char *)at + pitch, pitch, 0x155, 3, 2));
    WORKS(cudaMemcpy2D(back, 12, at, pitch, 10, 4, cudaMemcpyDeviceToHost));
    for (int y = 0; y < 4; y++) {
        for (int x = 0; x < 12; x++) {
            int filled = (y == 1 || y == 2) && x < 3;
            HOLDS(back[y][x] == (x >= 10 ? 0xee : filled ? 0x55 : from[y][x]));
        }
    }
    GIVES(cudaErrorInvalidPitchValue,
          cudaMemcpy2D(at, 9, from, 12, 10, 4, cudaMemcpyHostToDevice));
    WORKS(cudaFree(at));
    /* The second plane of two, by position. */
    cudaPitchedPtr box;
    cudaExtent extent = {12, 2, 2}, plane = {12, 2, 1};
    WORKS(cudaMalloc3D(&box, extent));
    HOLDS(box.xsize == 12 && box.ysize == 2);
    WORKS(cudaMemset3D(box, 9, extent));
    cudaMemcpy3DParms copy;
    memset(&copy, 0, sizeof copy);
    copy.srcPtr = (cudaPitchedPtr){from, 12, 12, 2};
    copy.srcPos = (cudaPos){0, 0, 1};
    copy.dstPtr = box;
    copy.extent = plane;
    copy.kind = cudaMemcpyHostToDevice;
    WORKS(cudaMemcpy3D(&copy));
    memset(&copy, 0, sizeof copy);
    copy.srcPtr = box;
    copy.dstPtr = (cudaPitchedPtr){back, 12, 12, 2};
    copy.extent = extent;
    copy.kind = cudaMemcpyDeviceToHost;
    WORKS(cudaMemcpy3D(&copy));
    HOLDS(memcmp(back[0], from[2], 24) == 0 && back[2][0] == 9 && back[3][11] == 9);
    copy.srcArray = &copy;
    GIVES(cudaErrorNotSupported, cudaMemcpy3D(&copy));
    WORKS(cudaFree(box.ptr));
}

static void of_pools(void)
{
    void *at, *other;
    cudaMemPool_t pool;
    uint64_t used;
    WORKS(cudaMallocAsync(&at, 100, NULL));
    WORKS(cudaDeviceGetDefaultMemPool(&pool, 0));
    WORKS(cudaMallocFromPoolAsync(&other, 28, pool, cudaStreamPerThread));
    WORKS(cudaMemPoolGetAttribute(pool, 7, &used));
    HOLDS(used == 128);
    WORKS(cudaMemsetAsync(at, 3, 100, NULL));
    WORKS(cudaFreeAsync(at, NULL));
    WORKS(cudaFreeAsync(other, NULL));
    GIVES(cudaErrorInvalidValue, cudaFreeAsync(at, NULL));
}

int main(void)
{
    of_the_device();
    of_both_sides();
    in_two_and_three_dimensions();
    of_pools();
    return 0;
}
