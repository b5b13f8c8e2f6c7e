/* Takes the memory named by its argument in MiB, says so, and holds it until its input ends. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    unsigned long address = 0, free_bytes = 0, total = 0;
    if (!driver) return 2;
    ((int (*)(unsigned))dlsym(driver, "cuInit"))(0);
    int created = ((int (*)(void **, unsigned, int))dlsym(driver, "cuCtxCreate_v2"))(&context, 0, 0);
    int taken = ((int (*)(unsigned long *, unsigned long))dlsym(driver, "cuMemAlloc_v2"))(&address, strtoul(arguments[1], 0, 10) << 20);
    ((int (*)(unsigned long *, unsigned long *))dlsym(driver, "cuMemGetInfo_v2"))(&free_bytes, &total);
    printf("context %d memory %d free %lu of %lu\n", created, taken, free_bytes >> 20, total >> 20);
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
