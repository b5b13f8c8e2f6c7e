// Finds functions as the CUDA runtime does: one dlsym, then cuGetProcAddress with versions and flags.
#include "cuda.h"
#include <dlfcn.h>
typedef CUresult (*GetProcAddress)(const char *, void **, int, uint64_t, int *);
static GetProcAddress get;
static void *find(const char *name, int version, uint64_t flags) {
    void *found;
    int status;
    OK(get(name, &found, version, flags, &status));
    return found;
}
int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    GetProcAddress first = (GetProcAddress)dlsym(driver, "cuGetProcAddress_v2");
    void *again;
    OK(first("cuGetProcAddress", &again, 12000, 0, NULL));
    get = (GetProcAddress)again;
    CUhandle context;
    CUdeviceptr pointer;
    OK(((CUresult(*)(unsigned))find("cuInit", 2000, 0))(0));
    OK(((CUresult(*)(CUhandle *, unsigned, int))find("cuCtxCreate", 3020, 0))(&context, 0, 0));
    OK(((CUresult(*)(CUdeviceptr *, size_t))find("cuMemAlloc", 3020, 0))(&pointer, 1 << 20));
    void *plain = find("cuMemAllocAsync", 11020, 0), *per_thread = find("cuMemAllocAsync", 11020, 2);
    printf("%d\n", plain != per_thread);
    OK(((CUresult(*)(CUdeviceptr *, size_t, CUhandle))plain)(&pointer, 4096, 0));
    OK(((CUresult(*)(CUdeviceptr *, size_t, CUhandle))per_thread)(&pointer, 8192, 0));
    void *missing = (void *)1;
    int status = 77;
    printf("%d %p %d\n", get("cuNoSuchFunction", &missing, 12000, 0, &status), missing, status);
    return 0;
}
