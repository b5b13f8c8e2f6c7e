// The least that any preloaded hook costs: looks the real function up once and calls it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
int cuMemAllocAsync(uint64_t *pointer, size_t bytes, void *stream) {
    static int (*real)(uint64_t *, size_t, void *);
    if (!real) real = (int (*)(uint64_t *, size_t, void *))dlsym(RTLD_NEXT, "cuMemAllocAsync");
    return real(pointer, bytes, stream);
}
int cuMemFreeAsync(uint64_t pointer, void *stream) {
    static int (*real)(uint64_t, void *);
    if (!real) real = (int (*)(uint64_t, void *))dlsym(RTLD_NEXT, "cuMemFreeAsync");
    return real(pointer, stream);
}
