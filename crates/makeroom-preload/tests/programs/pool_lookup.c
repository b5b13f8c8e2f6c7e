// Finds functions late, when a recorder that cannot write has long given up, and takes and gives back more than a limit lets
// through at once.
#include <dlfcn.h>

#include "cuda.h"
CUresult cuDevicePrimaryCtxRetain(CUhandle *, int);
CUresult cuDeviceGetDefaultMemPool(CUhandle *, int);
CUresult cuMemPoolTrimTo(CUhandle, size_t);
CUresult cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);

int main(void) {
    CUhandle context, pool;
    CUdeviceptr blocks[3];
    void *found = NULL;
    int status;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    for (int i = 0; i < 3; i++) OK(cuMemAllocAsync(&blocks[i], 4 << 20, 0));
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CUresult (*free_one)(CUdeviceptr) = (CUresult(*)(CUdeviceptr))dlsym(driver, "cuMemFree_v2");
    OK(free_one(blocks[0]));
    OK(cuGetProcAddress_v2("cuMemFree", &found, 13000, 0, &status));
    OK(((CUresult(*)(CUdeviceptr))found)(blocks[1]));
    found = NULL;
    OK(cuGetProcAddress_v2("cuMemFreeAsync", &found, 13000, 0, &status));
    OK(((CUresult(*)(CUdeviceptr, CUhandle))found)(blocks[2], 0));
    printf("freed\n");
    for (int i = 0; i < 20; i++) {
        OK(cuMemAllocAsync(&blocks[0], 200 << 20, 0));
        OK(cuMemFreeAsync(blocks[0], 0));
        OK(cuMemPoolTrimTo(pool, 0));
        round_trip(300 << 20);
        OK(cuMemPoolTrimTo(pool, 0));
    }
    printf("taken and given back\n");
    return 0;
}
