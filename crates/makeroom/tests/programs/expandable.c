// What PyTorch does with expandable segments: one range of addresses that grows by pages of 20 MiB, tensors that are a little
// larger in every step, and a report of each to libc10.so's function. A library beside it uses 8 MiB of the driver's.
// It prints the allocator settings that it was given. With an argument all steps are the same; if that is "default", the
// tensors are in a segment of fixed size, as in a program that changed the settings itself.
#include "cuda.h"
#include <stdint.h>
int cuMemAddressReserve(Pointer *, size_t, size_t, Pointer, uint64_t);
int cuMemCreate(Pointer *, size_t, const void *, uint64_t);
int cuMemMap(Pointer, size_t, size_t, Pointer, uint64_t);
int cuMemAllocPitch_v2(Pointer *, size_t *, size_t, size_t, unsigned);
__attribute__((weak)) void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(Pointer, long, size_t, size_t, uint16_t);

enum { MIB = 1 << 20, SLOT = 20 * MIB, CUDA_0 = 1 };

static void check(int result) {
    if (result) exit(97);
}

static void report(Pointer block, long size) {
    static size_t live;
    live += size;
    if (_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE)
        _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(block, size, live, 0, CUDA_0);
}

int main(int count, char **words) {
    const char *settings = getenv("PYTORCH_CUDA_ALLOC_CONF");
    printf("settings: %s\n", settings ? settings : "none");
    struct { int kind, handles, location, device; void *metadata; char flags[8]; } properties = {1, 0, 1, 0, 0, {0}};
    Pointer range, handle;
    size_t mapped = 0, pitch;
    begin();
    Pointer library = take(8 * MIB);
    if (count > 1 && !strcmp(words[1], "default")) {
        mapped = 60 * MIB;
        check(cuMemAllocPitch_v2(&range, &pitch, MIB, 60, 16));
    } else {
        check(cuMemAddressReserve(&range, (size_t)9 << 30, 0, 0, 0));
    }
    for (int step = 0; step < 30; step++) {
        size_t bytes = 60 * MIB + (count > 1 ? 0 : (size_t)step * 8 * MIB);
        for (; mapped < bytes; mapped += SLOT) {
            check(cuMemCreate(&handle, SLOT, &properties, 0));
            check(cuMemMap(range + mapped, SLOT, 0, handle, 0));
        }
        report(range, bytes);
        report(range, -(long)bytes);
    }
    check(cuMemFree_v2(library));
    return 0;
}
