// Asks the recorder what a part of the run cost: nanoseconds inside, calls, events, and the nanoseconds of the part.
#define _GNU_SOURCE
#include "cuda.h"
#include <dlfcn.h>
#include <time.h>
static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}
int main(void) {
    uint64_t before[3], after[3];
    int (*ask)(uint64_t *) = (int (*)(uint64_t *))dlsym(RTLD_DEFAULT, "makeroom_recorder_cost");
    begin();
    round_trip(4096);
    if (!ask || ask(before)) return 0;
    uint64_t start = now();
    for (int i = 0; i < 100; i++) round_trip(4096);
    uint64_t whole = now() - start;
    if (ask(after)) return 1;
    for (int i = 0; i < 3; i++) printf("%llu ", (unsigned long long)(after[i] - before[i]));
    printf("%llu\n", (unsigned long long)whole);
    return 0;
}
