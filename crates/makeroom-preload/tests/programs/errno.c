// errno and the thread's signal mask stay as the program left them.
#include "cuda.h"
#include <errno.h>
#include <signal.h>
int main(void) {
    errno = 42;
    begin();
    CUdeviceptr pointer;
    for (int i = 0; i < 10000; i++) {
        OK(cuMemAlloc_v2(&pointer, 512));
        OK(cuMemFree_v2(pointer));
    }
    cuMemAlloc_v2(&pointer, (size_t)1 << 40);
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    printf("%d %d\n", errno, sigismember(&mask, SIGINT));
    return 0;
}
