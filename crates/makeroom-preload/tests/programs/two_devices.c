// Two devices, each with a context; the second one is filled.
#include "cuda.h"
enum { MIB = 1 << 20 };
static size_t left(CUhandle context) {
    size_t free_bytes, total;
    OK(cuCtxSetCurrent(context));
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    return free_bytes / MIB;
}
int main(void) {
    CUhandle first, second;
    CUdeviceptr block;
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&first, 0, 0));
    OK(cuCtxCreate_v2(&second, 0, 1));
    size_t of_first = left(first), of_second = left(second);
    printf("%zu %zu\n", of_first, of_second);
    CUresult fits = cuMemAlloc_v2(&block, 256 * MIB), fits_too = cuMemAlloc_v2(&block, 256 * MIB);
    printf("%d %d %d\n", fits, fits_too, cuMemAlloc_v2(&block, 257 * MIB));
    of_first = left(first), of_second = left(second);
    printf("%zu %zu\n", of_first, of_second);
    return 0;
}
