// Asks what the pool cost a part of the run: nanoseconds inside, calls, and the nanoseconds of the part.
#define _GNU_SOURCE
#include "cuda.h"
#include <dlfcn.h>
#include <time.h>
CUresult cuDevicePrimaryCtxRetain(CUhandle *, int);
CUresult cuCtxSetCurrent(CUhandle);
static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}
int main(void) {
    uint64_t before[2], after[2];
    int (*ask)(uint64_t *) = (int (*)(uint64_t *))dlsym(RTLD_DEFAULT, "makeroom_pool_cost");
    CUhandle context;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    round_trip(4096);
    if (!ask || ask(before)) return 0;
    uint64_t start = now();
    for (int i = 0; i < 100; i++) round_trip(4096);
    uint64_t whole = now() - start;
    if (ask(after)) return 1;
    for (int i = 0; i < 2; i++) printf("%llu ", (unsigned long long)(after[i] - before[i]));
    printf("%llu\n", (unsigned long long)whole);
    return 0;
}
