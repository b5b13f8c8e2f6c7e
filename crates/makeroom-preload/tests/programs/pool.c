// Uses device memory in every way that a pool answers, and checks that each byte is its own. Prints the same with and
// without the pool.
#include <string.h>

#include "cuda.h"
CUresult cuDevicePrimaryCtxRetain(CUhandle *, int);
CUresult cuDeviceGetDefaultMemPool(CUhandle *, int);
CUresult cuMemPoolGetAttribute(CUhandle, int, void *);
CUresult cuMemPoolSetAttribute(CUhandle, int, void *);
CUresult cuMemPoolTrimTo(CUhandle, size_t);
CUresult cuMemPoolCreate(CUhandle *, const void *);
CUresult cuMemPoolDestroy(CUhandle);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *, size_t, CUhandle, CUhandle);
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUhandle);
CUresult cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);
CUresult cuStreamSynchronize(CUhandle);
CUresult cuStreamDestroy_v2(CUhandle);

enum { BLOCKS = 200, STEPS = 4000 };
static struct { CUdeviceptr address; size_t bytes; unsigned char value; int stream; } blocks[BLOCKS];
static unsigned state = 1;
static unsigned next(unsigned below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

// The first, a middle and the last byte are still what was written.
static void check(int index) {
    size_t places[3] = {0, blocks[index].bytes / 2, blocks[index].bytes - 1};
    for (int i = 0; i < 3; i++) {
        unsigned char found;
        OK(cuMemcpyDtoH_v2(&found, blocks[index].address + places[i], 1));
        if (found != blocks[index].value) {
            printf("block %d of %zu bytes holds %d instead of %d\n", index, blocks[index].bytes, found, blocks[index].value);
            exit(98);
        }
    }
}

int main(void) {
    CUhandle context, streams[3] = {0}, pool, own;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&streams[1], 1));
    OK(cuStreamCreate(&streams[2], 1));
    for (int step = 0; step < STEPS; step++) {
        int index = next(BLOCKS);
        if (blocks[index].address) {
            OK(cuStreamSynchronize(streams[blocks[index].stream]));
            check(index);
            if (next(8) == 0) OK(cuMemFree_v2(blocks[index].address));
            else OK(cuMemFreeAsync(blocks[index].address, streams[blocks[index].stream]));
            blocks[index].address = 0;
            continue;
        }
        blocks[index].bytes = 1 + next(next(4) ? 1 << 14 : 6 << 20);
        blocks[index].stream = next(3);
        blocks[index].value = next(256);
        if (next(4) == 0) OK(cuMemAlloc_v2(&blocks[index].address, blocks[index].bytes));
        else OK(cuMemAllocAsync(&blocks[index].address, blocks[index].bytes, streams[blocks[index].stream]));
        OK(cuMemsetD8Async(blocks[index].address, blocks[index].value, blocks[index].bytes, streams[blocks[index].stream]));
    }
    for (int index = 0; index < BLOCKS; index++)
        if (blocks[index].address) {
            OK(cuStreamSynchronize(streams[blocks[index].stream]));
            check(index);
        }
    printf("every byte is its own\n");

    uint64_t used = 0, high = 0, reserved = 0, zero = 0;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolGetAttribute(pool, 5, &reserved));
    OK(cuMemPoolGetAttribute(pool, 7, &used));
    OK(cuMemPoolGetAttribute(pool, 8, &high));
    printf("%d %d\n", used > 0 && used <= reserved, high >= used);
    OK(cuMemPoolSetAttribute(pool, 8, &zero));
    OK(cuMemPoolGetAttribute(pool, 8, &high));
    printf("%d\n", high == used || high - used < 1 << 20);

    struct { int kind, handles, location, device; char rest[72]; } properties = {1, 0, 1, 0, {0}};
    CUdeviceptr one;
    OK(cuMemPoolCreate(&own, &properties));
    OK(cuMemAllocFromPoolAsync(&one, 1 << 20, own, streams[1]));
    OK(cuMemPoolGetAttribute(own, 7, &used));
    printf("%d\n", used >= 1 << 20);
    OK(cuMemFreeAsync(one, streams[1]));
    OK(cuStreamSynchronize(streams[1]));
    OK(cuMemPoolGetAttribute(own, 7, &used));
    printf("%d\n", used == 0);
    OK(cuMemPoolDestroy(own));

    for (int index = 0; index < BLOCKS; index++)
        if (blocks[index].address) OK(cuMemFreeAsync(blocks[index].address, streams[blocks[index].stream]));
    for (int i = 0; i < 3; i++) OK(cuStreamSynchronize(streams[i]));
    OK(cuStreamDestroy_v2(streams[1]));
    OK(cuStreamDestroy_v2(streams[2]));
    OK(cuMemPoolTrimTo(pool, 0));
    OK(cuMemPoolGetAttribute(pool, 7, &used));
    OK(cuMemPoolGetAttribute(pool, 5, &reserved));
    printf("%d %d\n", used == 0, reserved == 0);
    OK(cuMemAlloc_v2(&one, 4096));
    OK(cuMemFree_v2(one));
    printf("%d\n", cuMemFree_v2(one) != 0);
    printf("%d\n", cuMemAlloc_v2(&one, (size_t)1 << 45));
    return 0;
}
