// A job of 16 ranks on eight devices. Without RANK it is the launcher: it starts the ranks with the variables that
// torchrun sets, and ends the others (SIGTERM) when one fails.
//
// unhandled   as killed, and no rank handles the launcher's signal, so none leaves an end
// crashed     the same after an exit with an error
// all-killed  the scheduler kills all ranks at once
// impossible  one rank requests more than a whole GPU has, and shares its GPU with another
// single      one rank that another launcher started
// stubborn    the scheduler asks all ranks to end, and kills the one that does not
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
    long long refused_at;
};
static struct Shared *shared;
static int rank;
static const char *scenario;

// The clock of the victim's host is behind. The recorder reads the time through this function.
int clock_gettime(clockid_t which, struct timespec *time) {
    long result = syscall(SYS_clock_gettime, which, time);
    const char *behind = which == CLOCK_REALTIME ? getenv("MILLISECONDS_BEHIND") : NULL;
    if (behind) {
        long long late = time->tv_sec * 1000LL + time->tv_nsec / 1000000 - atoi(behind);
        time->tv_sec = late / 1000;
        time->tv_nsec = late % 1000 * 1000000 + time->tv_nsec % 1000000;
    }
    return (int)result;
}

static long long microseconds(void) {
    struct timespec time;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000LL + time.tv_nsec / 1000;
}

static int is(const char *name) { return !strcmp(scenario, name); }

// A collective: waits for all ranks, or for the signal of the launcher.
static void barrier(int number) {
    __atomic_add_fetch(&shared->arrived, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&shared->arrived, __ATOMIC_SEQ_CST) < RANKS * number) usleep(1000);
}

static Pointer must(size_t bytes) {
    Pointer pointer;
    long long began = microseconds();
    if (bytes && cuMemAlloc_v2(&pointer, bytes)) {
        shared->refused_at = began;
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

// As training programs do that save a checkpoint. A process that does not handle the signal leaves no end.
static void ended(int number) { exit(128 + number); }

static void work(void) {
    if (!is("unhandled") && !is("all-killed") && !is("crashed") && !is("stubborn")) signal(SIGTERM, ended);
    if (is("stubborn")) signal(SIGTERM, rank == 5 ? SIG_IGN : ended);
    Handle context;
    int device = is("one-gpu") ? 0 : rank % 8;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context)) exit(97);
    weights();
    if (is("single")) exit(0);
    barrier(1);
    if (is("heavy")) {
        if (rank != 3) activations(GIB);
        barrier(2);
        if (rank == 3) activations(7 * GIB);
    } else if (is("impossible")) {
        activations(GIB);
        barrier(2);
        if (rank == 3) activations(100 * GIB);
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
        // 500 ms after the culprit, by a clock that is 550 ms behind: recorded 50 ms before it.
        while (rank == 11 && microseconds() < shared->refused_at + 500000) usleep(1000);
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
    if (is("crashed") && rank == 9) {
        while (__atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST) < RANKS) usleep(1000);
        usleep(300000);
        exit(3);
    }
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
        if (is("skew") && number == 11) setenv("MILLISECONDS_BEHIND", "550", 1);
        signal(SIGTERM, SIG_DFL);
        execv("/proc/self/exe", arguments);
        _exit(95);
    }
    if (is("killed") || is("unhandled") || is("all-killed") || is("stubborn")) {
        while (__atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST) < RANKS) usleep(1000);
        // The recordings show how long they are silent.
        usleep(is("all-killed") ? 2000000 : 500000);
        // The scheduler ends the job: at once, or with time to save a checkpoint.
        for (int number = 0; number < RANKS && (is("all-killed") || is("stubborn")); number++)
            kill(ranks[number], is("stubborn") ? SIGTERM : SIGKILL);
        if (is("stubborn")) usleep(600000);
        kill(ranks[5], SIGKILL);
    }
    // Ranks that fail together all get to report it before the others are ended.
    int wanted = is("stages") ? 8 : is("skew") ? 2 : 1, failed = 0, status;
    for (int left = RANKS; left && failed < wanted; left--) {
        if (wait(&status) > 0 && status) failed++;
    }
    // A launcher looks after its ranks several times a second.
    if (is("unhandled") || is("crashed")) usleep(500000);
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
