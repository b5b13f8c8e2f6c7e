// Closes every descriptor it did not open, as daemons do, and opens a file that gets the number.
#define _GNU_SOURCE
#include "cuda.h"
#include <fcntl.h>
#include <unistd.h>
int main(void) {
    begin();
    round_trip(1 << 10);
    for (int i = 3; i < 2000; i++) close(i);
    int file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    for (int i = 400; i < 700; i++) dup2(file, i);
    round_trip(2 << 10);
    usleep(300000);
    printf("%ld\n", (long)lseek(file, 0, SEEK_END));
    return 0;
}
