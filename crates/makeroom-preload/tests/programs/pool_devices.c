// Two devices: memory comes from the stream's device or the pool's, whichever context is current, and is freed on streams
// of other contexts.
#include "cuda.h"
CUresult cuDevicePrimaryCtxRetain(CUhandle *, int);
CUresult cuDeviceGetDefaultMemPool(CUhandle *, int);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *, size_t, CUhandle, CUhandle);
CUresult cuMemPoolTrimTo(CUhandle, size_t);
CUresult cuMemPoolGetAttribute(CUhandle, int, void *);
CUresult cuStreamSynchronize(CUhandle);
CUresult cuCtxSynchronize(void);
int makeroom_simgpu_enqueue_work(CUhandle, unsigned long long);
int makeroom_simgpu_advance(unsigned long long);

enum { MIB = 1 << 20 };
static CUhandle contexts[2];

// What is taken of each device, in steps of 64 MiB.
static void taken(const char *when) {
    static size_t before[2];
    printf("%s:", when);
    for (int device = 0; device < 2; device++) {
        size_t free, total;
        OK(cuCtxSetCurrent(contexts[device]));
        OK(cuMemGetInfo_v2(&free, &total));
        if (before[device] == 0) before[device] = free;
        printf(" %ld", (long)((before[device] - free + 32 * MIB) / (64 * MIB)));
    }
    printf("\n");
    OK(cuCtxSetCurrent(contexts[0]));
}

int main(void) {
    CUhandle streams[2], pools[2], other;
    CUdeviceptr block, next;
    OK(cuInit(0));
    for (int device = 0; device < 2; device++) {
        OK(cuDevicePrimaryCtxRetain(&contexts[device], device));
        OK(cuCtxSetCurrent(contexts[device]));
        OK(cuStreamCreate(&streams[device], 1));
        OK(cuDeviceGetDefaultMemPool(&pools[device], device));
        // Both have their pools from here on.
        round_trip(MIB);
    }
    taken("nothing");
    OK(cuMemAllocAsync(&block, 64 * MIB, streams[1]));
    taken("on the stream of device 1");
    OK(cuMemFreeAsync(block, streams[1]));
    OK(cuStreamSynchronize(streams[1]));
    OK(cuMemAllocFromPoolAsync(&block, 64 * MIB, pools[1], streams[0]));
    taken("from the pool of device 1, on device 0");
    OK(cuMemFreeAsync(block, streams[0]));
    OK(cuStreamSynchronize(streams[0]));
    OK(cuMemAllocFromPoolAsync(&block, 64 * MIB, pools[0], streams[0]));
    taken("from the pool of device 0");

    // Freed on a busy stream of the other device: nobody gets it before that is done.
    makeroom_simgpu_enqueue_work(streams[1], 1000000000);
    OK(cuMemFreeAsync(block, streams[1]));
    OK(cuStreamCreate(&other, 1));
    OK(cuMemAllocAsync(&next, 64 * MIB, other));
    printf("the same memory: %d\n", next == block);
    OK(cuMemFreeAsync(next, other));
    makeroom_simgpu_advance(2000000000);
    for (int device = 0; device < 2; device++) {
        OK(cuCtxSetCurrent(contexts[device]));
        OK(cuCtxSynchronize());
    }
    uint64_t reserved;
    OK(cuMemPoolTrimTo(pools[0], 0));
    OK(cuMemPoolGetAttribute(pools[0], 5, &reserved));
    printf("left after trimming: %d\n", reserved > 0);

    // And on a stream of a context of the program's own.
    CUhandle own;
    OK(cuCtxSetCurrent(contexts[0]));
    OK(cuMemAllocAsync(&block, 64 * MIB, streams[0]));
    OK(cuCtxCreate_v2(&own, 0, 0));
    OK(cuMemFreeAsync(block, 0));
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(contexts[0]));
    OK(cuCtxSynchronize());
    OK(cuMemPoolTrimTo(pools[0], 0));
    OK(cuMemPoolGetAttribute(pools[0], 5, &reserved));
    printf("left after trimming: %d\n", reserved > 0);
    return 0;
}
