/* A check that prints the line that failed, and what the test programs use of the driver. */
#ifndef CHECK_H
#define CHECK_H

#include <dlfcn.h>
#include <makeroom.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

#define CHECK(condition)                                                                             \
    do {                                                                                             \
        if (!(condition)) {                                                                          \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, makeroom_last_error()); \
            exit(1);                                                                                 \
        }                                                                                            \
    } while (0)

#define OK(call) CHECK((call) == MAKEROOM_OK)

/* A function of the driver that the library has loaded. */
static inline void *driver_function(const char *name) {
    void *found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
    CHECK(found != NULL);
    return found;
}

static inline makeroom_stats stats_of(makeroom_pool pool) {
    makeroom_stats stats;
    stats.size = sizeof stats;
    OK(makeroom_pool_stats(pool, &stats));
    CHECK(stats.reserved == stats.live + stats.rounding + stats.cached);
    return stats;
}

#endif
