// Another preloaded library that hooks dlsym, in the way such libraries do.
#define _GNU_SOURCE
#include <dlfcn.h>
#ifdef __aarch64__
#define FIRST_VERSION "GLIBC_2.17"
#else
#define FIRST_VERSION "GLIBC_2.2.5"
#endif
void *dlsym(void *handle, const char *name) {
    static void *(*real)(void *, const char *);
    if (!real) real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", FIRST_VERSION);
    return real(handle, name);
}
