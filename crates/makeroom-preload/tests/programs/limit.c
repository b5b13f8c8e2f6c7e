// Asks for memory until it is refused, gives one back, asks again.
#include "cuda.h"
int main(void) {
    size_t free_bytes, total, of_device;
    CUdeviceptr pointers[100];
    int count = 0;
    begin();
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    OK(cuDeviceTotalMem_v2(&of_device, 0));
    printf("%zu %zu\n", total >> 20, of_device >> 20);
    while (count < 100 && cuMemAlloc_v2(&pointers[count], 10 << 20) == 0) count++;
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    printf("%d blocks, %zu left\n", count, free_bytes >> 20);
    OK(cuMemFree_v2(pointers[0]));
    CUresult fits = cuMemAlloc_v2(&pointers[0], 10 << 20);
    printf("%d %d\n", fits, cuMemAlloc_v2(&pointers[1], 10 << 20));
    return 0;
}
