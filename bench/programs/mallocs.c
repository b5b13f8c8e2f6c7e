// The time of a malloc and its free, in nanoseconds: what a heap profiler adds to it is compared with the recorder.
#include <stdlib.h>
#include <time.h>
double mallocs(int count) {
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int i = 0; i < count; i++) {
        void *volatile block = malloc(4096);
        free(block);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    return ((end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec)) / count;
}
