// posix_spawn and vfork share memory with the parent until exec or _exit.
#define _GNU_SOURCE
#include "cuda.h"
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
int main(void) {
    begin();
    round_trip(1 << 10);
    pid_t pid;
    char *words[] = {"true", NULL};
    int status = posix_spawnp(&pid, "true", NULL, NULL, words, environ);
    waitpid(pid, &status, 0);
    printf("%d\n", WEXITSTATUS(status));
    pid = vfork();
    if (pid == 0) _exit(9);
    waitpid(pid, &status, 0);
    printf("%d\n", WEXITSTATUS(status));
    round_trip(2 << 10);
    return 0;
}
