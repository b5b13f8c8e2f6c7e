// Forks before and after CUDA is in use; the children use it too, and end by _exit.
#include "cuda.h"
#include <sys/wait.h>
#include <unistd.h>
static int child(size_t bytes) {
    pid_t pid = fork();
    if (pid == 0) {
        begin();
        round_trip(bytes);
        _exit(5);
    }
    int status;
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}
int main(void) {
    int before = child(1 << 10);
    begin();
    round_trip(2 << 10);
    int after = child(3 << 10);
    round_trip(4 << 10);
    printf("%d %d\n", before, after);
    return 0;
}
