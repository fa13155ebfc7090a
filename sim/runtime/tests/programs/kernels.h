/* Kernels in PTX, registered as a program's before `main`. */
#ifndef KERNELS_H
#define KERNELS_H

#include "fat_binary.h"

#define HEADER(target) ".version 8.0\n.target " target "\n.address_size 64\n"

/* y[i] = x[i] + offset for i < n; counts the calls in `calls`, on both sides in `seen`. */
static const char KERNELS[] =
    ".visible .global .align 4 .u32 calls = 5;\n"
    ".visible .const .align 4 .u32 offset = 100;\n"
    ".visible .global .attribute(.managed) .align 4 .u32 seen = 7;\n"
    ".visible .entry add(.param .u64 y, .param .u64 x, .param .u32 n) .maxntid 256, 1, 1 {\n"
    "  .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<9>;\n"
    "  ld.param.u64 %rd1, [y]; ld.param.u64 %rd2, [x]; ld.param.u32 %r1, [n];\n"
    "  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
    "  mad.lo.u32 %r5, %r2, %r3, %r4;\n"
    "  setp.ge.u32 %p1, %r5, %r1; @%p1 bra end;\n"
    "  mul.wide.u32 %rd3, %r5, 4; add.s64 %rd4, %rd2, %rd3; add.s64 %rd5, %rd1, %rd3;\n"
    "  ld.global.u32 %r6, [%rd4]; ld.const.u32 %r7, [offset]; add.u32 %r8, %r6, %r7;\n"
    "  st.global.u32 [%rd5], %r8;\n"
    "  setp.ne.u32 %p2, %r5, 0; @%p2 bra end;\n"
    "  red.global.add.u32 [calls], 1; red.global.add.u32 [seen], 1;\n"
    "end: ret;\n}\n"
    ".visible .entry stray() {\n"
    "  .reg .b64 %rd<2>; mov.u64 %rd1, 16; st.global.u32 [%rd1], 1; ret;\n}\n";

STANDS_FOR_A_KERNEL(add)
STANDS_FOR_A_KERNEL(stray)
STANDS_FOR_A_KERNEL(unknown)
STANDS_FOR_A_KERNEL(missing)
static unsigned calls, offset, *seen;
static void **kernels;

__attribute__((constructor)) static void register_kernels(void)
{
    char *text = malloc(sizeof KERNELS + 100), *made = container();
    /* The latest that the GPU takes is chosen; what is later is not looked at. */
    made = add_ptx(made, HEADER("sm_50") "no PTX", 50);
    made = add_ptx(made, strcat(strcpy(text, HEADER("sm_75")), KERNELS), 75);
    made = add_ptx(made, HEADER("sm_130") "no PTX", 130);
    kernels = register_container(made);
    register_kernel(kernels, add, "add");
    register_kernel(kernels, stray, "stray");
    register_kernel(kernels, missing, "missing");
    __cudaRegisterVar(kernels, (char *)&calls, NULL, "calls", 0, 4, 0, 0);
    __cudaRegisterVar(kernels, (char *)&offset, NULL, "offset", 0, 4, 1, 0);
    __cudaRegisterManagedVar(kernels, (void **)&seen, NULL, "seen", 0, 4, 0, 0);
    __cudaRegisterFatBinaryEnd(kernels);
    free(text);
}

__attribute__((destructor)) static void unregister_kernels(void)
{
    __cudaUnregisterFatBinary(kernels);
}

/* As `add<<<grid, block, shared, stream>>>(y, x, n)` of CUDA 12. */
static cudaError_t add_12(unsigned *y, const unsigned *x, int n, unsigned grid, unsigned block,
                          size_t shared, cudaStream_t stream)
{
    void *values[] = {&y, &x, &n};
    dim3 blocks = {grid, 1, 1}, threads = {block, 1, 1};
    return cudaLaunchKernel((const void *)add, blocks, threads, values, shared, stream);
}

#endif
