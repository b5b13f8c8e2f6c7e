// Does to its descriptors what the first argument says, and takes memory before and after.
#define _GNU_SOURCE
#include "cuda.h"
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
static void limit(int most) {
    struct rlimit limits = {most, most};
    setrlimit(RLIMIT_NOFILE, &limits);
}
int main(int count, char **words) {
    begin();
    for (int i = 0; i < 20; i++) round_trip(1 << 10);
    usleep(200000);
    if (!strcmp(words[1], "closefrom")) closefrom(3);
    if (!strcmp(words[1], "all")) closefrom(0);
    if (!strcmp(words[1], "limit")) limit(0);
    if (!strcmp(words[1], "chroot") && chroot("/proc/self/fdinfo")) return 97;
    if (!strcmp(words[1], "pipe")) {
        // Whoever reads must see its end when the program has closed it.
        int ends[2];
        char byte;
        if (pipe(ends)) return 97;
        round_trip(4 << 10);
        usleep(200000);
        close(ends[1]);
        printf("%zd\n", read(ends[0], &byte, 1));
        fflush(stdout);
    }
    for (int i = 0; i < 20; i++) round_trip(2 << 10);
    usleep(200000);
    for (int i = 0; i < 20; i++) round_trip(3 << 10);
    return 6;
}
