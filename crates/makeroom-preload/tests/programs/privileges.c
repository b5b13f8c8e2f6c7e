// Gives up its privileges while CUDA is in use; the first argument is the user it becomes.
#define _GNU_SOURCE
#include "cuda.h"
#include <unistd.h>
int main(int count, char **words) {
    begin();
    round_trip(1 << 10);
    int user = atoi(words[1]), failed = setresuid(user, user, user);
    printf("%d %d\n", failed, getuid() == user);
    fflush(stdout);
    usleep(250000);
    for (int i = 0; i < 20; i++) round_trip(2 << 10);
    return 3;
}
