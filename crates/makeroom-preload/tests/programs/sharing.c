// Memory that somebody else has taken, and memory that is held more than once: other interfaces' memory, exchange
// handles, pools and pointers handed over, handles retained and imported, multicast objects.
#include "cuda.h"
typedef struct { char bytes[64]; } Exchange;
CUresult cuIpcGetMemHandle(Exchange *, CUdeviceptr), cuIpcOpenMemHandle_v2(CUdeviceptr *, Exchange, unsigned);
CUresult cuIpcCloseMemHandle(CUdeviceptr);
CUresult cuImportExternalMemory(CUhandle *, const void *), cuDestroyExternalMemory(CUhandle);
CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *, CUhandle, const void *);
CUresult cuMemPoolCreate(CUhandle *, const void *), cuMemPoolDestroy(CUhandle);
CUresult cuMemPoolExportToShareableHandle(void *, CUhandle, int, uint64_t);
CUresult cuMemPoolImportFromShareableHandle(CUhandle *, void *, int, uint64_t);
CUresult cuMemPoolExportPointer(Exchange *, CUdeviceptr), cuMemPoolImportPointer(CUdeviceptr *, CUhandle, Exchange *);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *, size_t, CUhandle, CUhandle);
CUresult cuMemRetainAllocationHandle(CUdeviceptr *, void *);
CUresult cuMemExportToShareableHandle(void *, CUdeviceptr, int, uint64_t);
CUresult cuMemImportFromShareableHandle(CUdeviceptr *, void *, int);
CUresult cuMulticastCreate(CUdeviceptr *, const void *), cuMulticastAddDevice(CUdeviceptr, int);
CUresult cuMulticastBindMem(CUdeviceptr, size_t, CUdeviceptr, size_t, size_t, uint64_t);
CUresult cuMulticastBindAddr(CUdeviceptr, size_t, CUdeviceptr, size_t, uint64_t);
CUresult cuMulticastUnbind(CUdeviceptr, int, size_t, size_t);
CUresult cuMemAddressFree(CUdeviceptr, size_t);
enum { FILE_DESCRIPTOR = 1, MIB = 1 << 20 };
static void exchange(void) {
    CUdeviceptr own, opened;
    Exchange handle;
    OK(cuMemAlloc_v2(&own, 3 * MIB));
    OK(cuIpcGetMemHandle(&handle, own));
    OK(cuIpcOpenMemHandle_v2(&opened, handle, 1));
    OK(cuIpcCloseMemHandle(opened));
    OK(cuMemFree_v2(own));
}
static void external(void) {
    struct { int type; union { int fd; void *words[2]; } handle; uint64_t size; unsigned flags, reserved[16]; } memory = {
        .type = FILE_DESCRIPTOR, .size = 6 * MIB};
    struct { uint64_t offset, size; unsigned flags, reserved[16]; } buffer = {.offset = 2 * MIB, .size = 4 * MIB};
    CUhandle imported;
    CUdeviceptr mapped;
    OK(cuImportExternalMemory(&imported, &memory));
    OK(cuExternalMemoryGetMappedBuffer(&mapped, imported, &buffer));
    OK(cuMemFree_v2(mapped));
    OK(cuDestroyExternalMemory(imported));
}
static void pools(void) {
    struct { int type, handles, location, id; void *security; size_t largest; char reserved[56]; } properties = {
        .type = 1, .handles = FILE_DESCRIPTOR, .location = 1};
    CUhandle pool, imported;
    CUdeviceptr own, opened;
    Exchange exported;
    int descriptor;
    OK(cuMemPoolCreate(&pool, &properties));
    OK(cuMemPoolExportToShareableHandle(&descriptor, pool, FILE_DESCRIPTOR, 0));
    OK(cuMemPoolImportFromShareableHandle(&imported, (void *)(uintptr_t)descriptor, FILE_DESCRIPTOR, 0));
    OK(cuMemAllocFromPoolAsync(&own, 5 * MIB, pool, 0));
    OK(cuMemPoolExportPointer(&exported, own));
    OK(cuMemPoolImportPointer(&opened, imported, &exported));
    OK(cuMemFreeAsync(opened, 0));
    OK(cuMemFreeAsync(own, 0));
    OK(cuMemPoolDestroy(imported));
    OK(cuMemPoolDestroy(pool));
}
static void handles(void) {
    struct { int type, handles, location, id; char rest[64]; } properties = {1, FILE_DESCRIPTOR, 1, 0};
    CUdeviceptr handle, retained, imported, base;
    int descriptor;
    OK(cuMemCreate(&handle, 2 * MIB, &properties, 0));
    OK(cuMemAddressReserve(&base, 4 * MIB, 0, 0, 0));
    OK(cuMemMap(base, 2 * MIB, 0, handle, 0));
    OK(cuMemRetainAllocationHandle(&retained, (void *)base));
    OK(cuMemRelease(handle));
    OK(cuMemExportToShareableHandle(&descriptor, retained, FILE_DESCRIPTOR, 0));
    OK(cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)descriptor, FILE_DESCRIPTOR));
    OK(cuMemRelease(imported));
    OK(cuMemUnmap(base, 2 * MIB));
    OK(cuMemRelease(retained));
    OK(cuMemAddressFree(base, 4 * MIB));
    printf("%d\n", cuMemRelease(retained));
}
static void multicast(void) {
    struct { unsigned devices; size_t size; uint64_t handles, flags; } properties = {1, 4 * MIB, 0, 0};
    struct { int type, handles, location, id; char rest[64]; } memory = {1, 0, 1, 0};
    CUdeviceptr object, handle, block;
    OK(cuMulticastCreate(&object, &properties));
    OK(cuMulticastAddDevice(object, 0));
    OK(cuMemCreate(&handle, 2 * MIB, &memory, 0));
    OK(cuMulticastBindMem(object, 0, handle, 0, 2 * MIB, 0));
    OK(cuMemAlloc_v2(&block, 2 * MIB));
    OK(cuMulticastBindAddr(object, 2 * MIB, block, 2 * MIB, 0));
    OK(cuMulticastUnbind(object, 0, 0, 2 * MIB));
    OK(cuMulticastUnbind(object, 0, 2 * MIB, 2 * MIB));
    OK(cuMemFree_v2(block));
    OK(cuMemRelease(handle));
    OK(cuMemRelease(object));
}
int main(void) {
    size_t before, after, total;
    begin();
    OK(cuMemGetInfo_v2(&before, &total));
    exchange(), external(), pools(), handles(), multicast();
    OK(cuMemGetInfo_v2(&after, &total));
    printf("%d\n", before == after);
    return 0;
}
