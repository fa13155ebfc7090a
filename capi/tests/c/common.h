/* What test programs share: calls that must succeed, and values in files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mcdnn.h"
#include "mcdnn_kiln.h"

#define CHECK(call)                                                                                \
    do {                                                                                           \
        mcdnnStatus_t status_ = (call);                                                            \
        if (status_ != MCDNN_STATUS_SUCCESS) {                                                     \
            char text_[512];                                                                       \
            mcdnnGetLastErrorString(text_, sizeof(text_));                                         \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, mcdnnGetErrorString(status_),   \
                    text_);                                                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* The bytes of a file; exits if there are not so many. */
static inline void *file_bytes(const char *folder, const char *name, size_t bytes)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    void *data = calloc(1, bytes + 1);
    if (file == NULL || fread(data, 1, bytes + 1, file) != bytes) {
        fprintf(stderr, "%s has not %zu bytes\n", path, bytes);
        exit(1);
    }
    fclose(file);
    return data;
}

static inline void write_bytes(const char *folder, const char *name, const void *data, size_t bytes)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) {
        fprintf(stderr, "%s cannot be written\n", path);
        exit(1);
    }
}

/* Device memory with the bytes of a file. */
static inline void *upload(mcdnnHandle_t handle, const char *folder, const char *name, size_t bytes)
{
    void *address = NULL;
    void *data = file_bytes(folder, name, bytes);
    CHECK(mcdnnKilnMalloc(handle, &address, bytes));
    CHECK(mcdnnKilnMemcpyHtoD(handle, address, data, bytes));
    free(data);
    return address;
}

/* Device memory of zeros. */
static inline void *zeros(mcdnnHandle_t handle, size_t bytes)
{
    void *address = NULL;
    void *data = calloc(1, bytes + 1);
    CHECK(mcdnnKilnMalloc(handle, &address, bytes));
    CHECK(mcdnnKilnMemcpyHtoD(handle, address, data, bytes));
    free(data);
    return address;
}

/* A file with the bytes of device memory. */
static inline void download(mcdnnHandle_t handle, const char *folder, const char *name,
                            const void *address, size_t bytes)
{
    void *data = malloc(bytes + 1);
    CHECK(mcdnnKilnMemcpyDtoH(handle, data, address, bytes));
    write_bytes(folder, name, data, bytes);
    free(data);
}
