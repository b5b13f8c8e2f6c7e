// The plain way: a context, blocks of every kind, all given back but one.
#include "cuda.h"
int main(void) {
    CUhandle context = begin(), pinned;
    CUdeviceptr kept, pointer;
    OK(cuMemAlloc_v2(&kept, 3 << 20));
    round_trip(1 << 20);
    OK(cuMemAllocAsync(&pointer, 4096, 0));
    OK(cuMemFreeAsync(pointer, 0));
    OK(cuMemHostAlloc(&pinned, 8192, 0));
    OK(cuMemFreeHost(pinned));
    printf("%d\n", cuMemAlloc_v2(&pointer, (size_t)1 << 40));
    OK(cuCtxDestroy_v2(context));
    return 7;
}
