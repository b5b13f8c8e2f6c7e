// Reports blocks as PyTorch's allocator does, and measures what one report costs: the median of many batches, each
// small enough for the recorder's rings. Called from Python, so that there is a Python stack.
#include "cuda.h"
#include <algorithm>
#include <time.h>
#include <unistd.h>
namespace c10 {
struct Device { int8_t type, index; };
void reportMemoryUsageToProfiler(void *, long, unsigned long, unsigned long, Device);
}
enum { BATCHES = 31, EVENTS = 1000 };
static void *block(long number) { return (void *)(0x700000000000 + number * 512); }
static double now() {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}
// Nanoseconds of one block that is handed out (frees carry no stack, and are not timed).
extern "C" double measure() {
    double batches[BATCHES];
    c10::Device cuda{1, 0};
    begin();
    for (double &batch : batches) {
        double start = now();
        for (long i = 0; i < EVENTS; i++) c10::reportMemoryUsageToProfiler(block(i), 512, 0, 0, cuda);
        batch = (now() - start) / EVENTS;
        usleep(20000);
        for (long i = 0; i < EVENTS; i++) c10::reportMemoryUsageToProfiler(block(i), -512, 0, 0, cuda);
        usleep(20000);
    }
    std::sort(batches, batches + BATCHES);
    return batches[BATCHES / 2];
}
