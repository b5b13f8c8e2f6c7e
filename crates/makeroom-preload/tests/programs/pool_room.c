// What a pool holds unused is free: the driver is asked for most of the card in every way there is, each time after as much
// was taken and freed in stream order.
#include "cuda.h"
CUresult cuDevicePrimaryCtxRetain(CUhandle *, int);
CUresult cuMemAllocPitch_v2(CUdeviceptr *, size_t *, size_t, size_t, unsigned);
CUresult cuArrayCreate_v2(CUhandle *, const void *);
CUresult cuArrayDestroy(CUhandle);
CUresult cuStreamSynchronize(CUhandle);
CUresult cuDeviceGetDefaultMemPool(CUhandle *, int);
CUresult cuGraphDestroy(CUhandle);

enum { MIB = 1 << 20 };

static void fill(void) {
    CUdeviceptr block;
    OK(cuMemAllocAsync(&block, (size_t)1400 * MIB, 0));
    OK(cuMemFreeAsync(block, 0));
    OK(cuStreamSynchronize(0));
}

int main(void) {
    CUhandle primary, stream, array, own, graph;
    CUdeviceptr block, handle;
    size_t free, total, pitch;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    OK(cuStreamCreate(&stream, 1));
    fill();
    OK(cuMemGetInfo_v2(&free, &total));
    printf("free: %d\n", free >= (size_t)1500 * MIB);
    struct { int kind, handles, location, device; void *metadata; char flags[8]; } properties = {1, 0, 1, 0, 0, {0}};
    OK(cuMemCreate(&handle, (size_t)1200 * MIB, &properties, 0));
    OK(cuMemRelease(handle));
    printf("physical memory\n");
    fill();
    OK(cuMemAllocPitch_v2(&block, &pitch, 1200 * MIB / 1024, 1024, 4));
    OK(cuMemFree_v2(block));
    printf("rows\n");
    fill();
    struct { size_t width, height; int format; unsigned channels; } shape = {8192, 9600, 0x20, 4};
    OK(cuArrayCreate_v2(&array, &shape));
    OK(cuArrayDestroy(array));
    printf("an array\n");
    fill();
    OK(cuCtxCreate_v2(&own, 0, 0));
    OK(cuCtxDestroy_v2(own));
    OK(cuCtxSetCurrent(primary));
    printf("a context\n");
    fill();
    OK(cuStreamBeginCapture_v2(stream, 2));
    OK(cuMemAlloc_v2(&block, (size_t)1200 * MIB));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuMemFree_v2(block));
    printf("a block beside a capture\n");
    fill();
    OK(cuMemAlloc_v2(&block, (size_t)1400 * MIB));
    OK(cuStreamBeginCapture_v2(stream, 2));
    OK(cuMemFree_v2(block));
    OK(cuStreamEndCapture(stream, &graph));
    fill();
    printf("a free beside a capture\n");
    return 0;
}
