// Opens the driver late, finds functions with dlsym, closes it, opens it again.
#include "cuda.h"
#include <dlfcn.h>
typedef CUresult (*Init)(unsigned);
typedef CUresult (*Create)(CUhandle *, unsigned, int);
typedef CUresult (*Alloc)(CUdeviceptr *, size_t);
int main(void) {
    void *probe = dlopen("libcuda.so.1", RTLD_NOW);
    printf("%d\n", dlsym(probe, "cuMemAlloc_v2") != NULL);
    printf("%d %d\n", dlsym(probe, "cuNoSuchFunction") == NULL, dlerror() != NULL);
    dlclose(probe);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CUhandle context;
    CUdeviceptr pointer;
    OK(((Init)dlsym(driver, "cuInit"))(0));
    printf("%d\n", dlerror() == NULL);
    OK(((Create)dlsym(driver, "cuCtxCreate_v2"))(&context, 0, 0));
    OK(((Alloc)dlsym(driver, "cuMemAlloc_v2"))(&pointer, 1 << 20));
    dlclose(driver);
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    OK(((Init)dlsym(driver, "cuInit"))(0));
    OK(((Create)dlsym(driver, "cuCtxCreate_v2"))(&context, 0, 0));
    OK(((Alloc)dlsym(driver, "cuMemAlloc_v2"))(&pointer, 2 << 20));
    printf("done\n");
    return 0;
}
