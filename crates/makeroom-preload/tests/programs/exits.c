// Ends in a way that runs no destructors: the first argument says which. "…-soon" ends at once, the others after the
// writer has had its time.
#include "cuda.h"
#include <assert.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static jmp_buf back;
static void come_back(int number) { longjmp(back, 1); }
static void last(void) { round_trip(2 << 10); }
static int is(const char *way, const char *name) { return !strcmp(way, name); }
int main(int count, char **words) {
    const char *way = words[1];
    begin();
    for (int i = 0; i < 20; i++) round_trip(1 << 10);
    printf("%s\n", way);
    fflush(stdout);
    if (is(way, "_exit")) _exit(11);
    if (is(way, "_Exit")) _Exit(12);
    if (is(way, "quick_exit")) at_quick_exit(last), quick_exit(13);
    if (is(way, "abort-soon")) abort();
    if (is(way, "assert-soon")) assert(!"this holds");
    if (is(way, "raise-soon")) raise(SIGTERM);
    if (is(way, "kill-soon")) kill(getpid(), SIGINT);
    if (is(way, "handled")) {
        signal(SIGABRT, come_back);
        if (!setjmp(back)) abort();
        signal(SIGTERM, SIG_IGN);
        raise(SIGTERM);
        kill(getpid(), SIGTERM);
        round_trip(2 << 10);
        return 14;
    }
    usleep(300000);
    if (is(way, "abort")) abort();
    if (is(way, "kill")) syscall(SYS_kill, getpid(), SIGKILL);
    if (is(way, "terminate")) syscall(SYS_kill, getpid(), SIGTERM);
    if (is(way, "segfault")) *(volatile int *)8 = 1;
    return count;
}
