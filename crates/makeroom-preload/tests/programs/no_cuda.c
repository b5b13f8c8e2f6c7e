// Never uses CUDA, and probes whether it is there.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
static int entries(const char *folder) {
    int count = 0;
    DIR *opened = opendir(folder);
    while (readdir(opened)) count++;
    closedir(opened);
    return count;
}
int main(void) {
    free(malloc(100));
    printf("%p %p %p\n", dlsym(RTLD_DEFAULT, "cuInit"), dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"),
           dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
    printf("%s\n", dlsym(RTLD_DEFAULT, "no_such_function") ? "found" : dlerror() ? "missing, with an error" : "missing");
    printf("%d descriptors, %d threads\n", entries("/proc/self/fd"), entries("/proc/self/task"));
    return 3;
}
