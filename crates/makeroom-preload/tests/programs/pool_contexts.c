// Contexts: a program with contexts of its own gets no primary one, and one that lets its primary context go has none.
#include "cuda.h"
CUresult cuDevicePrimaryCtxRetain(CUhandle *, int);
CUresult cuDevicePrimaryCtxRelease_v2(int);
CUresult cuDevicePrimaryCtxGetState(int, unsigned *, int *);
CUresult cuStreamSynchronize(CUhandle);

static int is_active(void) {
    unsigned flags;
    int active;
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    return active;
}

int main(void) {
    CUhandle own = begin(), primary, again;
    CUdeviceptr block;
    round_trip(4 << 20);
    OK(cuMemAllocAsync(&block, 4 << 20, 0));
    OK(cuMemFreeAsync(block, 0));
    OK(cuStreamSynchronize(0));
    printf("a context of its own: %d\n", is_active());
    OK(cuCtxDestroy_v2(own));
    for (int round = 0; round < 3; round++) {
        OK(cuDevicePrimaryCtxRetain(&primary, 0));
        OK(cuDevicePrimaryCtxRetain(&again, 0));
        OK(cuCtxSetCurrent(primary));
        OK(cuMemAllocAsync(&block, 4 << 20, 0));
        OK(cuMemFreeAsync(block, 0));
        round_trip(6 << 20);
        OK(cuDevicePrimaryCtxRelease_v2(0));
        printf("held once: %d\n", is_active());
        round_trip(6 << 20);
        OK(cuCtxSetCurrent(NULL));
        OK(cuDevicePrimaryCtxRelease_v2(0));
        printf("let go: %d\n", is_active());
    }
    return 0;
}
