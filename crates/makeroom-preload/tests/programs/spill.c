// Holds more memory than the card has, and checks that each block is its own.
#include "cuda.h"
CUresult cuDevicePrimaryCtxRetain(CUhandle *, int);
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUhandle);
CUresult cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);
CUresult cuStreamSynchronize(CUhandle);

enum { BLOCKS = 24, BYTES = 40 << 20 };

int main(void) {
    CUhandle context;
    CUdeviceptr blocks[BLOCKS];
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            OK(cuMemAllocAsync(&blocks[i], BYTES - (i << 12), 0));
            OK(cuMemsetD8Async(blocks[i], (unsigned char)(i + round), BYTES - (i << 12), 0));
        }
        OK(cuStreamSynchronize(0));
        for (int i = 0; i < BLOCKS; i++) {
            unsigned char last = 0;
            OK(cuMemcpyDtoH_v2(&last, blocks[i] + BYTES - (i << 12) - 1, 1));
            if (last != (unsigned char)(i + round)) printf("block %d holds %d\n", i, last);
            OK(cuMemFreeAsync(blocks[i], 0));
        }
    }
    printf("%d MiB at once\n", BLOCKS * 40);
    return 0;
}
