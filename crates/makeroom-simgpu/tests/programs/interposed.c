/* With a preloaded cuMemAlloc_v2 in the way: what the driver gives out as its own function is its own. */
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), *function = 0; int status; unsigned long address;
    ((int (*)(unsigned))dlsym(driver, "cuInit"))(0);
    ((int (*)(const char *, void **, int, unsigned long, int *))dlsym(driver, "cuGetProcAddress_v2"))("cuMemAlloc", &function, 12000, 0, &status);
    printf("global %d\n", ((int (*)(unsigned long *, unsigned long))dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"))(&address, 512));
    printf("given %d\n", ((int (*)(unsigned long *, unsigned long))function)(&address, 512));
    printf("same %d\n", function == dlsym(driver, "cuMemAlloc_v2"));
    return 0;
}
