// cuMemGetAddressRange and the range attributes of a pointer return the program's own allocation, from any address inside of
// it, as the driver does for its own memory; and nothing for memory that was freed. Prints sizes and offsets, which are the
// same with every allocator.
#include "cuda.h"
CUresult cuDevicePrimaryCtxRetain(CUhandle *, int);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *, size_t *, CUdeviceptr);
CUresult cuMemAllocPitch_v2(CUdeviceptr *, size_t *, size_t, size_t, unsigned);
CUresult cuMemsetD8_v2(CUdeviceptr, unsigned char, size_t);
CUresult cuPointerGetAttribute(void *, int, CUdeviceptr);
CUresult cuPointerGetAttributes(unsigned, int *, void **, CUdeviceptr);
enum { MEMORY_TYPE = 2, RANGE_START_ADDR = 11, RANGE_SIZE = 12 };

static void show(const char *what, CUdeviceptr block, size_t offset) {
    CUdeviceptr start = 7, address = block + offset;
    size_t bytes = 7;
    CUresult result = cuMemGetAddressRange_v2(&start, &bytes, address);
    printf("%s: %d, begins %zd before, %zu bytes\n", what, result, result == 0 ? address - start : start, bytes);
    start = bytes = 7;
    CUresult first = cuPointerGetAttribute(&start, RANGE_START_ADDR, address);
    CUresult second = cuPointerGetAttribute(&bytes, RANGE_SIZE, address);
    printf("  one by one: %d and %d, begins %zd before, %zu bytes\n", first, second, first == 0 ? address - start : start, bytes);
    unsigned type = 7;
    int attributes[] = {RANGE_SIZE, MEMORY_TYPE, RANGE_START_ADDR};
    void *values[] = {&bytes, &type, &start};
    result = cuPointerGetAttributes(3, attributes, values, address);
    printf("  together: %d, begins %zd before, %zu bytes\n", result, start ? address - start : 0, bytes);
}

int main(int count, char **words) {
    CUhandle primary, pinned;
    CUdeviceptr blocks[64], ordered, rows, start;
    size_t bytes, pitch;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    for (int i = 0; i < 64; i++) OK(cuMemAlloc_v2(&blocks[i], 40 + 1000 * i));
    show("a small block", blocks[0], 0);
    show("its last byte", blocks[0], 39);
    show("the middle of another", blocks[63], 31520);
    OK(cuMemAllocAsync(&ordered, 5000000, 0));
    show("a block in stream order", ordered, 4999999);
    // What numba does: a program that fills its range leaves the others alone.
    OK(cuMemGetAddressRange_v2(&start, &bytes, blocks[7] + 1));
    OK(cuMemsetD8_v2(start, 1, bytes));
    OK(cuMemGetAddressRange_v2(0, &bytes, blocks[7]));
    OK(cuMemGetAddressRange_v2(&start, 0, blocks[7]));
    printf("one answer alone: %zu, %d\n", bytes, start == blocks[7]);
    // The driver's own memory is the driver's to answer for.
    OK(cuMemAllocPitch_v2(&rows, &pitch, 512, 16, 4));
    show("rows", rows, 512);
    OK(cuMemHostAlloc(&pinned, 8192, 2));
    show("pinned memory", (CUdeviceptr)pinned, 100);
    // More than a limit lets through: the last ones lie in host memory.
    for (int i = 0; count > 1 && i < 14; i++) {
        OK(cuMemAllocAsync(&ordered, 100000001, 0));
        show("a large block", ordered, 99999999);
    }
    OK(cuMemFree_v2(blocks[0]));
    OK(cuMemFree_v2(blocks[63]));
    show("a freed block", blocks[63], 5);
    OK(cuMemGetAddressRange_v2(&start, &bytes, blocks[62]));
    printf("after frees: %zu\n", bytes);
    OK(cuCtxSetCurrent(0));
    show("without a context", blocks[62], 1);
    return 0;
}
