// Null out-parameters, no context, host locations: the driver's answers, not ours.
#include "cuda.h"
int main(void) {
    CUdeviceptr pointer;
    struct { int type, handles, location, id; char rest[64]; } host = {1, 0, 3, 0}, device = {1, 0, 1, 0};
    // Refused before the driver looks at the structure, which is not there.
    printf("%d\n", cuLaunchKernelEx((void *)8, 0, NULL, NULL));
    printf("%d\n", cuInit(0));
    printf("%d\n", cuMemAlloc_v2(&pointer, 4096));
    printf("%d\n", cuMemCreate(&pointer, 2 << 20, &device, 0));
    printf("%d\n", cuMemRelease(pointer));
    begin();
    printf("%d %d\n", cuMemAlloc_v2(NULL, 4096), cuMemAlloc_v2(&pointer, 0));
    printf("%d\n", cuMemGetInfo_v2(NULL, NULL));
    printf("%d\n", cuMemCreate(&pointer, 2 << 20, &host, 0));
    printf("%d\n", cuMemCreate(&pointer, 2 << 20, NULL, 0));
    printf("%d\n", cuMemFree_v2(12345));
    return 0;
}
