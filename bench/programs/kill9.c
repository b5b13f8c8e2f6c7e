// Allocates and frees continuously, and writes the time of each call to memory that outlives the process: kill9 FILE.
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
int cuInit(unsigned), cuCtxCreate_v2(void **, unsigned, int), cuMemAlloc_v2(uint64_t *, uint64_t), cuMemFree_v2(uint64_t);
static volatile uint64_t *notes; // The process, the allocations, the times of the last and the first call in nanoseconds.
static void note(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    notes[2] = now.tv_sec * 1000000000ull + now.tv_nsec;
    if (!notes[3]) notes[3] = notes[2];
}
int main(int count, char **words) {
    int file = open(words[1], O_RDWR);
    notes = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    void *context;
    uint64_t blocks[16] = {0};
    if (cuInit(0) || cuCtxCreate_v2(&context, 0, 0)) return 1;
    notes[0] = getpid();
    for (unsigned turn = 0;; turn++) {
        uint64_t *block = &blocks[turn % 16];
        if (*block) { cuMemFree_v2(*block); note(); }
        if (cuMemAlloc_v2(block, 4096 + turn % 7 * 512)) return 2;
        note();
        notes[1]++;
        if (turn % 64 == 0) usleep(1000);
    }
}
