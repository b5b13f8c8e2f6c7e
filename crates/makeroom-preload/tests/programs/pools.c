// Stream-ordered memory, of which the driver's pool takes more than is asked for, up to a request that is refused.
#include "cuda.h"
int main(void) {
    CUdeviceptr block, none;
    begin();
    OK(cuMemAllocAsync(&block, 3 << 20, 0));
    printf("%d\n", cuMemAllocAsync(&none, (size_t)1 << 50, 0));
    OK(cuMemFreeAsync(block, 0));
    return 0;
}
