// Opens a library whose constructor uses CUDA: the loader's lock is held while the recorder starts.
#include "cuda.h"
#include <dlfcn.h>
#include <time.h>
int main(int count, char **words) {
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    void *library = dlopen(words[1], RTLD_NOW);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    double seconds = ended.tv_sec - began.tv_sec + 1e-9 * (ended.tv_nsec - began.tv_nsec);
    printf("%d %d\n", library != NULL, seconds < 1.9);
    return 0;
}
