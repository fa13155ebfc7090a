/* What Kiln has beyond mcdnn.h. */
#ifndef MCDNN_KILN_H_
#define MCDNN_KILN_H_

#include "mcdnn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Failures and facts
 * ================== */

/* Why the last function of this thread that did not succeed did not, as much of it as
 * there is room for; an empty text after that. */
void mcdnnGetLastErrorString(char message[], size_t max_size);

/* Kiln's own version, such as "0.1.0". */
mcdnnStatus_t mcdnnKilnVersion(char version[], size_t room);

/* Finds or compiles every kernel of a manifest (docs of `kiln warm`), so that no call that the
 * manifest foresees compiles. */
mcdnnStatus_t mcdnnKilnWarm(mcdnnHandle_t handle, const char *manifest);

/* Adds a pack of prebuilt kernels to those that are searched on devices whose first handle is
 * made after this. */
mcdnnStatus_t mcdnnKilnPack(const char *path);

/* What a finalized execution plan runs: for each kernel a line with the engine, its knobs, the
 * kernel and where it came from. As much of it as there is room for; needed, unless it is
 * NULL, is what there is, NUL included. */
mcdnnStatus_t mcdnnKilnExplain(
    mcdnnBackendDescriptor_t plan,
    char text[],
    size_t room,
    size_t *needed);

/* The device of a handle: the target that kernels are built for, such as "sm_90a". */
mcdnnStatus_t mcdnnKilnDevice(mcdnnHandle_t handle, char name[], size_t room);

/* Memory, for programs without CUDA
 * ================================= */

/* Allocates device memory, which is not initialised. */
mcdnnStatus_t mcdnnKilnMalloc(mcdnnHandle_t handle, void **address, size_t bytes);

/* Frees memory of mcdnnKilnMalloc once what is queued has been done; NULL is none. */
mcdnnStatus_t mcdnnKilnFree(mcdnnHandle_t handle, void *address);

/* Copies to memory of mcdnnKilnMalloc, after what is queued on the handle's stream; waits. */
mcdnnStatus_t mcdnnKilnMemcpyHtoD(mcdnnHandle_t handle, void *to, const void *from, size_t bytes);

/* Copies from memory of mcdnnKilnMalloc, after what is queued on the handle's stream; waits. */
mcdnnStatus_t mcdnnKilnMemcpyDtoH(mcdnnHandle_t handle, void *to, const void *from, size_t bytes);

/* Waits for what is queued on the handle's stream. */
mcdnnStatus_t mcdnnKilnSynchronize(mcdnnHandle_t handle);

#ifdef __cplusplus
}
#endif

#endif
