// What these programs use of the driver's interface.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long Pointer;
typedef void *Handle;
int cuInit(unsigned);
int cuCtxCreate_v2(Handle *, unsigned, int);
int cuCtxDestroy_v2(Handle);
int cuCtxSetCurrent(Handle);
int cuDevicePrimaryCtxRetain(Handle *, int);
int cuMemAlloc_v2(Pointer *, size_t);
int cuMemFree_v2(Pointer);
int cuMemHostAlloc(Handle *, size_t, unsigned);
int cuMemAllocAsync(Pointer *, size_t, Handle);
int cuMemFreeAsync(Pointer, Handle);
int cuStreamCreate(Handle *, unsigned);
int cuModuleLoadData(Handle *, const void *);
int cuModuleGetFunction(Handle *, Handle, const char *);
int cuLaunchKernel(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **,
                   void **);

// The runtime's way: the context that it shares.
static inline Handle begin(void) {
    Handle context;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) exit(99);
    return context;
}

static inline Pointer take(size_t bytes) {
    Pointer pointer;
    if (cuMemAlloc_v2(&pointer, bytes)) exit(98);
    return pointer;
}
