/* Device memory is not the host's: touching it ends the program, as with a real card. */
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context; char *address = 0;
    ((int (*)(unsigned))dlsym(driver, "cuInit"))(0);
    ((int (*)(void **, unsigned, int))dlsym(driver, "cuCtxCreate_v2"))(&context, 0, 0);
    if (((int (*)(char **, unsigned long))dlsym(driver, "cuMemAlloc_v2"))(&address, 4096)) return 3;
    address[7] = 1;
    return 0;
}
