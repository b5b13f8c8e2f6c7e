// The driver serves one call by another of its exported functions.
#include "cuda.h"
int main(void) {
    CUdeviceptr pointer;
    begin();
    OK(cuMemAllocManaged(&pointer, 1 << 20, 1));
    printf("done\n");
    return 0;
}
