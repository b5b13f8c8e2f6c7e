// Allocates and frees as fast as it can for some seconds, and prints the number of calls: soak SECONDS.
#include <stddef.h>
#include <stdio.h>
#include <time.h>
extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(unsigned long long *, size_t), cuMemFree_v2(unsigned long long);
int main(int count, char **arguments) {
    void *context;
    double seconds;
    sscanf(arguments[1], "%lf", &seconds);
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 90;
    unsigned long events = 0;
    for (time_t end = time(NULL) + seconds; time(NULL) < end;) {
        for (int round = 0; round < 1000; round++) {
            unsigned long long block;
            if (cuMemAlloc_v2(&block, 4096 + 512 * (round % 7)) || cuMemFree_v2(block)) return 91;
            events += 2;
        }
    }
    printf("%lu\n", events);
    return 0;
}
