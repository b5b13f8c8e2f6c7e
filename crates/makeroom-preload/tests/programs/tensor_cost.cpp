// Reports blocks as PyTorch's allocator does, and measures what one report costs. Called from Python, so that there is a
// Python stack: in batches small enough for the recorder's rings, or one by one, between work that leaves nothing of the
// recorder in the processor's caches, as a training step does.
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

// The recorder reads Python's first stacks with care, and the first of each kind is stored: these are not measured.
enum { COLD_BYTES = 4 << 20, FIRST = 300, MOST = 1 << 16 };
static double cold_ns[MOST];
static long cold_events;
static volatile char other_work[COLD_BYTES];
// One block, handed out after other work.
extern "C" void report_cold() {
    c10::Device cuda{1, 0};
    for (long at = 0; at < COLD_BYTES; at += 64) other_work[at]++;
    double start = now();
    c10::reportMemoryUsageToProfiler(block(cold_events), 512, 0, 0, cuda);
    cold_ns[cold_events % MOST] = now() - start;
    c10::reportMemoryUsageToProfiler(block(cold_events++), -512, 0, 0, cuda);
}
extern "C" void begin_cold() { begin(); }
// The median nanoseconds of one of them.
extern "C" double cold() {
    std::sort(cold_ns + FIRST, cold_ns + cold_events);
    return cold_ns[(FIRST + cold_events) / 2];
}
