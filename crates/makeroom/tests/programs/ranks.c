// A job of 16 ranks on eight devices. Without RANK it is the launcher: it starts the ranks with the variables that
// torchrun sets, and ends the others (SIGTERM) when one fails.
#define _GNU_SOURCE
#include "cuda.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define RANKS 16
#define GIB ((size_t)1 << 30)

struct Shared {
    int arrived, refused, ready;
};
static struct Shared *shared;
static int rank;
static const char *scenario;

// The clock of the victim's host is behind. The recorder reads the time through this function.
int clock_gettime(clockid_t which, struct timespec *time) {
    long result = syscall(SYS_clock_gettime, which, time);
    const char *behind = which == CLOCK_REALTIME ? getenv("SECONDS_BEHIND") : NULL;
    if (behind) time->tv_sec -= atoi(behind);
    return (int)result;
}

static int is(const char *name) { return !strcmp(scenario, name); }

// A collective: waits for all ranks, or for the signal of the launcher.
static void barrier(int number) {
    __atomic_add_fetch(&shared->arrived, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&shared->arrived, __ATOMIC_SEQ_CST) < RANKS * number) usleep(1000);
}

static Pointer must(size_t bytes) {
    Pointer pointer;
    if (bytes && cuMemAlloc_v2(&pointer, bytes)) {
        __atomic_add_fetch(&shared->refused, 1, __ATOMIC_SEQ_CST);
        // A process that unwinds slowly still holds its memory.
        while (is("skew") && __atomic_load_n(&shared->refused, __ATOMIC_SEQ_CST) < 2) usleep(1000);
        exit(1);
    }
    return pointer;
}
static void weights(void) { must(GIB / 2); }
static void activations(size_t bytes) { must(bytes); }
static void embedding(void) { must(GIB / 2); }
static void head(void) { must(4 * GIB); }
static void logits(void) { must(4 * GIB); }
static void experts(size_t bytes) { must(bytes); }
static int probe(void) {
    Pointer pointer;
    return cuMemAlloc_v2(&pointer, 100 * GIB);
}

// As training programs do that save a checkpoint; a process that does not handle the signal leaves no end.
static void ended(int number) { exit(128 + number); }

static void work(void) {
    signal(SIGTERM, ended);
    Handle context;
    int device = is("one-gpu") ? 0 : rank % 8;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context)) exit(97);
    weights();
    barrier(1);
    if (is("heavy")) {
        if (rank != 3) activations(GIB);
        barrier(2);
        if (rank == 3) activations(7 * GIB);
    } else if (is("stages")) {
        rank < 8 ? embedding() : head();
        barrier(2);
        if (rank >= 8) logits();
    } else if (is("experts")) {
        if (rank != 11) experts(GIB + (size_t)(rank % 3) * (64 << 20));
        barrier(2);
        if (rank == 11) experts(6 * GIB);
    } else if (is("skew")) {
        if (rank != 11) activations(rank == 3 ? 6 * GIB + GIB / 2 : GIB);
        barrier(2);
        while (rank == 11 && !__atomic_load_n(&shared->refused, __ATOMIC_SEQ_CST)) usleep(1000);
        if (rank == 3) activations(2 * GIB);
        if (rank == 11) activations(GIB);
    } else if (is("caught")) {
        if (rank == 7 && probe() == 0) exit(96);
        for (int step = 0; step < 16; step++) activations(16 << 20);
        barrier(2);
        return;
    } else {
        activations(GIB / 4);
    }
    __atomic_add_fetch(&shared->ready, 1, __ATOMIC_SEQ_CST);
    for (;;) pause();
}

static void launch(char **arguments) {
    pid_t ranks[RANKS];
    for (int number = 0; number < RANKS; number++) {
        ranks[number] = fork();
        if (ranks[number]) continue;
        char text[16];
        sprintf(text, "%d", number);
        setenv("RANK", text, 1);
        setenv("LOCAL_RANK", text, 1);
        setenv("WORLD_SIZE", "16", 1);
        setenv("LOCAL_WORLD_SIZE", "16", 1);
        if (is("skew") && number == 11) setenv("SECONDS_BEHIND", "5", 1);
        signal(SIGTERM, SIG_DFL);
        execv("/proc/self/exe", arguments);
        _exit(95);
    }
    if (is("killed")) {
        while (__atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST) < RANKS) usleep(1000);
        usleep(200000);
        kill(ranks[5], SIGKILL);
    }
    // Ranks that fail together all get to report it before the others are ended.
    int wanted = is("stages") ? 8 : is("skew") ? 2 : 1, failed = 0, status;
    for (int left = RANKS; left && failed < wanted; left--) {
        if (wait(&status) > 0 && status) failed++;
    }
    for (int number = 0; number < RANKS && failed; number++) kill(ranks[number], SIGTERM);
    while (wait(&status) > 0) {}
    exit(failed ? 1 : 0);
}

int main(int count, char **arguments) {
    scenario = count > 1 ? arguments[1] : "";
    const char *number = getenv("RANK");
    int file = open("shared", O_RDWR | O_CREAT | (number ? 0 : O_TRUNC), 0600);
    if (file < 0 || ftruncate(file, sizeof *shared)) return 94;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED) return 93;
    if (!number) launch(arguments);
    rank = atoi(number);
    work();
    return 0;
}
