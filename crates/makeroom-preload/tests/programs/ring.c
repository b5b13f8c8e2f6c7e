// Allocates and frees many times, and keeps some of it. Ends as its argument says: "exit", "fail" (status 3), "kill".
#include "cuda.h"
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ROUNDS = 80000, EVERY = 800 };

int main(int count, char **arguments) {
    CUhandle context = begin();
    for (int round = 0; round < ROUNDS; round++) {
        CUdeviceptr block, kept;
        OK(cuMemAlloc_v2(&block, 4096));
        if (round % EVERY == 0)
            OK(cuMemAlloc_v2(&kept, 1024));
        OK(cuMemFree_v2(block));
        if (round % 2000 == 0)
            usleep(50000);
    }
    const char *end = count > 1 ? arguments[1] : "exit";
    if (strcmp(end, "kill") == 0) {
        usleep(400000);
        // Not the C library's function, which the recorder sees.
        syscall(SYS_kill, getpid(), SIGKILL);
    }
    return strcmp(end, "fail") == 0 ? 3 : 0;
}
