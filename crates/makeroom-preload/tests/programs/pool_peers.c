// Who may use memory of the pool on device 1: nobody else while the driver refuses device 0, and device 0 once it agrees.
#include "cuda.h"
CUresult cuDevicePrimaryCtxRetain(CUhandle *, int);
CUresult cuCtxEnablePeerAccess(CUhandle, unsigned);
CUresult cuMemGetAccess(unsigned long long *, const void *, CUdeviceptr);

static CUhandle contexts[2];

static void look(void) {
    struct { int kind, device; } zero = {1, 0}, one = {1, 1};
    unsigned long long of_zero, of_one;
    CUdeviceptr block;
    OK(cuCtxSetCurrent(contexts[1]));
    OK(cuMemAllocAsync(&block, 64 << 20, 0));
    OK(cuMemGetAccess(&of_zero, &zero, block));
    OK(cuMemGetAccess(&of_one, &one, block));
    printf("%llu %llu\n", of_zero, of_one);
    OK(cuCtxSetCurrent(contexts[0]));
}

int main(void) {
    OK(cuInit(0));
    for (int device = 0; device < 2; device++) OK(cuDevicePrimaryCtxRetain(&contexts[device], device));
    OK(cuCtxSetCurrent(contexts[0]));
    printf("%d\n", cuCtxEnablePeerAccess(contexts[1], 0));
    look();
    printf("%d\n", cuCtxEnablePeerAccess(contexts[1], 0));
    look();
    return 0;
}
