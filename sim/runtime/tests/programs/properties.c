/* `cudaDeviceProp` as programs have it that were compiled for CUDA 12 and for CUDA 13. */
#include "runtime_api.h"

/* Where each has a field, which attribute it is, and whether it is a `size_t`. */
static const struct { int in_12, in_13, attribute, wide; } FIELDS[] = {
    {296, 296, 8, 1},   /* sharedMemPerBlock */
    {308, 308, 10, 0},  /* warpSize */
    {336, 336, 5, 0},   /* maxGridSize */
    {360, 360, 75, 0},  /* major */
    {388, 384, 16, 0},  /* multiProcessorCount */
    {616, 596, 38, 0},  /* l2CacheSize */
    {640, 624, 81, 1},  /* sharedMemPerMultiprocessor */
    {696, 672, 97, 1},  /* sharedMemPerBlockOptin */
    {720, 696, 111, 1}, /* reservedSharedMemPerBlock */
    {772, 748, 120, 0}, /* clusterLaunch */
};

static void check(const unsigned char *found, size_t bytes, int is_13)
{
    HOLDS(strcmp((const char *)found, "Kiln simulated GPU") == 0);
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) {
        int at = is_13 ? FIELDS[i].in_13 : FIELDS[i].in_12, value;
        size_t wide = 0;
        memcpy(&wide, found + at, FIELDS[i].wide ? sizeof wide : sizeof value);
        WORKS(cudaDeviceGetAttribute(&value, FIELDS[i].attribute, 0));
        HOLDS(wide == (size_t)value);
    }
    /* As many bytes as the structure has, and not one more. */
    HOLDS(found[bytes - 1] == 0 && found[bytes] == 0xee);
}

int main(void)
{
    unsigned char found[2048];
    memset(found, 0xee, sizeof found);
    WORKS(cudaGetDeviceProperties(found, 0));
    check(found, 1008, 1);
    memset(found, 0xee, sizeof found);
    WORKS(cudaGetDeviceProperties_v2(found, 0));
    check(found, 1032, 0);
    GIVES(cudaErrorInvalidDevice, cudaGetDeviceProperties(found, 1));
    GIVES(cudaErrorInvalidValue, cudaGetDeviceProperties(NULL, 0));
    return 0;
}
