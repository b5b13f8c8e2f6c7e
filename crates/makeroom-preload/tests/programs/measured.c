// Asks the recorder what a part of the run cost: nanoseconds inside, calls, events, and the nanoseconds of the part. With an
// argument the pool, which counts no events and serves the primary context.
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
int main(int count, char **words) {
    uint64_t before[3], after[3];
    const char *name = count > 1 ? "makeroom_pool_cost" : "makeroom_recorder_cost";
    int (*ask)(uint64_t *) = (int (*)(uint64_t *))dlsym(RTLD_DEFAULT, name);
    CUhandle context;
    if (count == 1) begin();
    else if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    round_trip(4096);
    if (!ask || ask(before)) return 0;
    uint64_t start = now();
    for (int i = 0; i < 100; i++) round_trip(4096);
    uint64_t whole = now() - start;
    if (ask(after)) return 1;
    for (int i = 0; i < (count > 1 ? 2 : 3); i++) printf("%llu ", (unsigned long long)(after[i] - before[i]));
    printf("%llu\n", (unsigned long long)whole);
    return 0;
}
