// Another preloaded library that hooks dlsym, in the way such libraries do.
#define _GNU_SOURCE
#include <dlfcn.h>
void *dlsym(void *handle, const char *name) {
    static void *(*real)(void *, const char *);
    if (!real) real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return real(handle, name);
}
