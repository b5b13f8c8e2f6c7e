// A signal handler jumps out of a driver call that takes long; later calls come from deeper frames.
#include "cuda.h"
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>
static sigjmp_buf back;
static void jump(int number) { siglongjmp(back, 1); }
static int __attribute__((noinline)) deeper(int depth) {
    volatile char room[512];
    for (int i = 0; i < 512; i++) room[i] = (char)depth;
    if (depth == 0) {
        round_trip(2 << 10);
        return room[9];
    }
    return deeper(depth - 1) + room[7];
}
int main(void) {
    CUdeviceptr pointer;
    begin();
    signal(SIGALRM, jump);
    if (sigsetjmp(back, 1) == 0) {
        ualarm(50000, 0);
        cuMemAlloc_v2(&pointer, 12345);
        printf("not jumped\n");
    }
    deeper(8);
    round_trip(4 << 10);
    printf("done\n");
    return 0;
}
