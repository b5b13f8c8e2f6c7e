// Makes a context while another process takes memory of the same card all the time, and says what is left of the limit.
// With "hidden" the driver does not list this process, as in a container with numbers of its own.
#include "cuda.h"
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
enum { MIB = 1 << 20 };
// For ten seconds at most.
static void take_until_killed(int started) {
    CUdeviceptr pointer;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    begin();
    OK(cuMemAlloc_v2(&pointer, 8 * MIB));
    if (write(started, "x", 1) != 1) _exit(1);
    for (int times = 0; times < 2000; times++) {
        cuMemAlloc_v2(&pointer, 16 * MIB);
        usleep(5000);
    }
    exit(0);
}
int main(int count, char **words) {
    size_t free_bytes, total;
    CUdeviceptr pointer;
    int started[2], status;
    char byte, text[64];
    if (count > 2) take_until_killed(atoi(words[2]));
    if (pipe(started) != 0) return 1;
    sprintf(text, "%d", started[1]);
    pid_t neighbour = fork();
    if (neighbour == 0) {
        setenv("MAKEROOM", "off", 1);
        setenv("MAKEROOM_SIMGPU", "memory=64GiB", 1);
        execl("/proc/self/exe", "neighbour", "neighbour", text, NULL);
        _exit(1);
    }
    if (read(started[0], &byte, 1) != 1) return 1;
    if (count > 1 && strcmp(words[1], "hidden") == 0) {
        sprintf(text, "list=%d:none", getpid());
        setenv("MAKEROOM_SIMNVML", text, 1);
    }
    begin();
    kill(neighbour, SIGKILL);
    waitpid(neighbour, &status, 0);
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    printf("%zu of %zu\n", free_bytes / MIB, total / MIB);
    OK(cuMemAlloc_v2(&pointer, 400 * MIB));
    return 0;
}
