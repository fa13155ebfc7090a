/* What Kiln has beyond mcdnn.h. */
#ifndef MCDNN_KILN_H_
#define MCDNN_KILN_H_

#include "mcdnn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Failures and facts
 * ================== */

/* Why the last function of this thread that did not answer MCDNN_STATUS_SUCCESS did not, as
 * much of it as there is room for; an empty text after that. */
void mcdnnGetLastErrorString(char message[], size_t max_size);

/* Kiln's own version, such as "0.1.0". */
mcdnnStatus_t mcdnnKilnVersion(char version[], size_t room);

/* The device of a handle: the target that kernels are built for, such as "sm_90a". */
mcdnnStatus_t mcdnnKilnDevice(mcdnnHandle_t handle, char name[], size_t room);

/* Memory, for programs without CUDA
 * ================================= */

/* Allocates device memory, which is not initialised. */
mcdnnStatus_t mcdnnKilnMalloc(mcdnnHandle_t handle, void * *address, size_t bytes);

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
