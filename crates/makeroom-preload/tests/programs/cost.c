// Prints the median nanoseconds of one allocation with its free, in batches small enough for the recorder's rings.
#include "cuda.h"
#include <time.h>
#include <unistd.h>
enum { BATCHES = 31, PAIRS = 500 };
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}
static int compare(const void *left, const void *right) {
    double difference = *(double *)left - *(double *)right;
    return (difference > 0) - (difference < 0);
}
static int __attribute__((noinline)) deep(int depth, double *batch) {
    if (depth > 0) return deep(depth - 1, batch) + 1;
    double start = now();
    for (int i = 0; i < PAIRS; i++) {
        CUdeviceptr pointer;
        cuMemAllocAsync(&pointer, 4096, 0);
        cuMemFreeAsync(pointer, 0);
    }
    *batch = (now() - start) / PAIRS;
    return 0;
}
int main(void) {
    double batches[BATCHES];
    begin();
    for (int i = 0; i < BATCHES; i++) {
        deep(20, &batches[i]);
        usleep(20000);
    }
    qsort(batches, BATCHES, sizeof *batches, compare);
    printf("%.1f\n", batches[BATCHES / 2]);
    return 0;
}
