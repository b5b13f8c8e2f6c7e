// Becomes another program by the function that the first argument names, after an attempt that fails.
#define _GNU_SOURCE
#include "cuda.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
extern char **environ;
int main(int count, char **words) {
    begin();
    round_trip(1 << 10);
    if (count > 2) {
        for (int i = 2; i < count; i++) printf("%s\n", words[i]);
        return 4;
    }
    char *many[] = {words[0], "now", "a", "b", "c", "d", "e", NULL};
    char *self = "/proc/self/exe", *way = words[1];
    int failed = execl("/no/such/program", "x", NULL);
    printf("%d %d\n", failed, errno == ENOENT);
    fflush(stdout);
    for (int i = 0; i < 20; i++) round_trip(2 << 10);
    if (!strcmp(way, "execve")) execve(self, many, environ);
    if (!strcmp(way, "execv")) execv(self, many);
    if (!strcmp(way, "execvp")) execvp(self, many);
    if (!strcmp(way, "execvpe")) execvpe(self, many, environ);
    if (!strcmp(way, "execl")) execl(self, words[0], "now", "a", "b", "c", "d", "e", NULL);
    if (!strcmp(way, "execlp")) execlp(self, words[0], "now", "a", "b", "c", "d", "e", NULL);
    if (!strcmp(way, "execle")) execle(self, words[0], "now", "a", "b", "c", "d", "e", NULL, environ);
    if (!strcmp(way, "fexecve")) fexecve(open(self, O_RDONLY), many, environ);
    if (!strcmp(way, "execveat")) execveat(AT_FDCWD, self, many, environ, 0);
    return 1;
}
