// What gpu/programs/torch_cost.py writes down, from a program without PyTorch: seconds, allocations, and the recorder's own
// figures of the time between. The argument is how many allocations are claimed beyond those that are made.
#define _GNU_SOURCE
#include "cuda.h"
#include <dlfcn.h>
#include <time.h>
enum { ROUNDS = 1000 };
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}
int main(int count, char **words) {
    unsigned long long before[3], after[3];
    int (*ask)(void *) = (int (*)(void *))dlsym(RTLD_DEFAULT, "makeroom_recorder_cost");
    FILE *file = fopen(getenv("GPU_CHECK_FIGURES"), "w");
    begin();
    int is_measured = ask && ask(before) == 0;
    double start = now();
    for (int i = 0; i < ROUNDS; i++)
        if (cuMemFree_v2(take(4096))) return 1;
    double seconds = now() - start;
    fprintf(file, "{\"end\": {\"seconds\": [%f], \"allocations\": %d, \"recorder\": ", seconds, ROUNDS + atoi(words[1]));
    if (is_measured && ask(after) == 0)
        fprintf(file, "{\"inside_ns\": %llu, \"calls\": %llu, \"events\": %llu}}}", after[0] - before[0],
                after[1] - before[1], after[2] - before[2]);
    else
        fprintf(file, "null}}");
    fclose(file);
    return 0;
}
