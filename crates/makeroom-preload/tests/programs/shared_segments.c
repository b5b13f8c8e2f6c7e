// PyTorch's native allocator takes segments with cudaMalloc and shares them with other processes, where expandable
// segments are off: that needs memory of the driver's own. The program's own memory is the pool's all the same.
#include "cuda.h"
CUresult cuDevicePrimaryCtxRetain(CUhandle *, int);
CUresult cuIpcGetMemHandle(char *, CUdeviceptr);
CUdeviceptr segment(size_t);

int main(void) {
    CUhandle primary;
    CUdeviceptr own, shared;
    char handle[64];
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    OK(cuMemAlloc_v2(&own, 3 << 20));
    shared = segment(20 << 20);
    printf("shared: %d\n", cuIpcGetMemHandle(handle, shared));
    OK(cuMemFree_v2(shared));
    OK(cuMemFree_v2(own));
    return 0;
}
