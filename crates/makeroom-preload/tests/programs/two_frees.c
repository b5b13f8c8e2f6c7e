// Takes memory on the second and third device of three and gives it back while the other one is current.
#include "cuda.h"
int main(void) {
    CUhandle contexts[2];
    CUdeviceptr plain[2], ordered[2];
    OK(cuInit(0));
    for (int i = 0; i < 2; i++) {
        OK(cuCtxCreate_v2(&contexts[i], 0, i + 1));
        OK(cuMemAlloc_v2(&plain[i], 3 << 20));
        OK(cuMemAllocAsync(&ordered[i], 5 << 20, 0));
    }
    for (int i = 0; i < 2; i++) {
        OK(cuMemFreeAsync(ordered[1 - i], 0));
        OK(cuCtxSetCurrent(contexts[i]));
        OK(cuMemFree_v2(plain[1 - i]));
    }
    return 0;
}
