// Functions of the minimal driver (libcuda.c); programs declare all others. `OK` prints the line of a call that failed.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif
typedef int CUresult;
typedef uint64_t CUdeviceptr;
typedef void *CUhandle;
CUresult cuInit(unsigned);
CUresult cuCtxCreate_v2(CUhandle *, unsigned, int);
CUresult cuCtxDestroy_v2(CUhandle);
CUresult cuCtxSetCurrent(CUhandle);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuMemAllocManaged(CUdeviceptr *, size_t, unsigned);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemAllocAsync(CUdeviceptr *, size_t, CUhandle);
CUresult cuMemFreeAsync(CUdeviceptr, CUhandle);
CUresult cuMemHostAlloc(CUhandle *, size_t, unsigned);
CUresult cuMemFreeHost(CUhandle);
CUresult cuMemGetInfo_v2(size_t *, size_t *);
CUresult cuDeviceTotalMem_v2(size_t *, int);
CUresult cuMemCreate(CUdeviceptr *, size_t, const void *, uint64_t);
CUresult cuMemRelease(CUdeviceptr);
CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, uint64_t);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUdeviceptr, uint64_t);
CUresult cuMemUnmap(CUdeviceptr, size_t);
CUresult cuStreamCreate(CUhandle *, unsigned);
CUresult cuStreamBeginCapture_v2(CUhandle, int);
CUresult cuStreamEndCapture(CUhandle, CUhandle *);
CUresult cuModuleLoadData(CUhandle *, const void *);
CUresult cuModuleGetFunction(CUhandle *, CUhandle, const char *);
CUresult cuLaunchKernelEx(const void *, CUhandle, void **, void **);
CUresult cuLaunchKernel(CUhandle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUhandle,
                        void **, void **);
#ifdef __cplusplus
}
#endif

#define OK(call)                                                             \
    do {                                                                     \
        CUresult result_ = (call);                                           \
        if (result_ != 0) {                                                  \
            printf("%s:%d: %s = %d\n", __FILE__, __LINE__, #call, result_);  \
            exit(99);                                                        \
        }                                                                    \
    } while (0)

// A context on the first device.
static inline CUhandle begin(void) {
    CUhandle context;
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    return context;
}

// One block, taken and given back.
static inline void round_trip(size_t bytes) {
    CUdeviceptr pointer;
    OK(cuMemAlloc_v2(&pointer, bytes));
    OK(cuMemFree_v2(pointer));
}
