// Takes and gives back memory of every kind under a limit, and prints what is left of it after each step.
#include "cuda.h"
#include <dlfcn.h>
enum { MIB = 1 << 20 };
CUresult cuMemAllocPitch_v2(CUdeviceptr *, size_t *, size_t, size_t, unsigned);
CUresult cuArray3DCreate_v2(CUhandle *, const void *), cuArrayDestroy(CUhandle), cuMemAddressFree(CUdeviceptr, size_t);
CUresult cuArrayCreate_v2(CUhandle *, const void *);
CUresult cuDevicePrimaryCtxRetain(CUhandle *, int), cuDevicePrimaryCtxRelease_v2(int), cuDevicePrimaryCtxReset_v2(int);
CUresult cuMemRetainAllocationHandle(CUdeviceptr *, void *);
static int (*info)(void *, void *), (*info_v2)(void *, void *);
static void *device;
static void left(const char *what) {
    size_t free_bytes, total;
    struct { uint64_t total, free, used; } memory;
    struct { unsigned version; uint64_t total, reserved, free, used; } second = {.version = sizeof second | 2 << 24};
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    printf("%s: %zu of %zu", what, free_bytes / MIB, total / MIB);
    if (info) {
        OK(info(device, &memory));
        OK(info_v2(device, &second));
        if (memory.total != total || memory.free != free_bytes || memory.free + memory.used != memory.total)
            printf(", NVML: %zu of %zu", memory.free / MIB, memory.total / MIB);
        if (second.total != total || second.free != free_bytes || second.used != memory.used)
            printf(", NVML's second form: %zu of %zu", second.free / MIB, second.total / MIB);
    }
    printf("\n");
}
static void start_management(void) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*start)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
    int (*by_index)(unsigned, void **) = (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    info = (int (*)(void *, void *))dlsym(library, "nvmlDeviceGetMemoryInfo");
    info_v2 = (int (*)(void *, void *))dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
    OK(start());
    OK(by_index(0, &device));
}
int main(void) {
    struct { int type, handles, location, id; char rest[64]; } properties = {1, 0, 1, 0}, on_host = {1, 0, 3, 0};
    struct { size_t width, height; unsigned format, channels; } flat = {1024, 1024, 0x20, 4};
    struct { size_t width, height, depth; unsigned format, channels, flags; } deep = {1024, 1024, 2, 0x20, 4, 0};
    CUdeviceptr block, handle, retained, base;
    CUhandle context, second, array, primary;
    size_t pitch, total;
    OK(cuInit(0));
    OK(cuDeviceTotalMem_v2(&total, 0));
    printf("%zu\n", total / MIB);
    start_management();
    OK(cuCtxCreate_v2(&context, 0, 0));
    left("context");
    printf("second context: %d\n", cuCtxCreate_v2(&second, 0, 0));
    left("refused");
    OK(cuMemAlloc_v2(&block, 64 * MIB));
    left("block");
    printf("too large: %d\n", cuMemAlloc_v2(&pitch, 64 * MIB + 1));
    OK(cuMemFree_v2(block));
    OK(cuMemAllocPitch_v2(&block, &pitch, 1 * MIB - 100, 32, 4));
    OK(cuMemFree_v2(block));
    left("pitched and freed");
    OK(cuArrayCreate_v2(&array, &flat));
    left("array");
    OK(cuArrayDestroy(array));
    OK(cuArray3DCreate_v2(&array, &deep));
    left("deep array");
    OK(cuArrayDestroy(array));
    OK(cuMemAllocAsync(&block, 32 * MIB, 0));
    left("stream-ordered");
    OK(cuMemFreeAsync(block, 0));
    OK(cuMemCreate(&handle, 16 * MIB, &on_host, 0));
    OK(cuMemRelease(handle));
    OK(cuMemCreate(&handle, 16 * MIB, &properties, 0));
    OK(cuMemAddressReserve(&base, 32 * MIB, 0, 0, 0));
    OK(cuMemMap(base, 16 * MIB, 0, handle, 0));
    OK(cuMemMap(base + 16 * MIB, 16 * MIB, 0, handle, 0));
    OK(cuMemRetainAllocationHandle(&retained, (void *)base));
    left("mapped twice");
    OK(cuMemRelease(handle));
    OK(cuMemRelease(retained));
    left("released and mapped");
    OK(cuMemUnmap(base, 32 * MIB));
    OK(cuMemAddressFree(base, 32 * MIB));
    left("unmapped");
    OK(cuMemAlloc_v2(&block, 64 * MIB));
    OK(cuMemAllocAsync(&block, 32 * MIB, 0));
    left("held");
    OK(cuCtxDestroy_v2(context));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    left("another context");
    OK(cuMemAlloc_v2(&block, 64 * MIB));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    left("released once");
    OK(cuDevicePrimaryCtxReset_v2(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    left("reset");
    return 0;
}
