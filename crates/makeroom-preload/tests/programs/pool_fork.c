// A process that forks while another thread uses pools: no child waits for a lock that nobody gives back.
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda.h"
CUresult cuDevicePrimaryCtxRetain(CUhandle *, int);
CUresult cuMemPoolCreate(CUhandle *, const void *);
CUresult cuMemPoolGetAttribute(CUhandle, int, void *);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *, size_t, CUhandle, CUhandle);

static CUhandle context, pool;
static volatile int is_over;

static void *use(void *unused) {
    OK(cuCtxSetCurrent(context));
    while (!is_over) {
        uint64_t used;
        CUdeviceptr block;
        OK(cuMemAllocFromPoolAsync(&block, 4096, pool, 0));
        OK(cuMemPoolGetAttribute(pool, 7, &used));
        OK(cuMemFreeAsync(block, 0));
    }
    return NULL;
}

int main(void) {
    struct { int kind, handles, location, device; char rest[72]; } properties = {1, 0, 1, 0, {0}};
    pthread_t threads[3];
    int whole = 0;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemPoolCreate(&pool, &properties));
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, use, NULL);
    for (int i = 0; i < 100; i++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            uint64_t used;
            CUdeviceptr block = 0;
            alarm(10);
            int failed = cuMemPoolGetAttribute(pool, 7, &used) != 0;
            failed += cuMemAllocFromPoolAsync(&block, 4096, pool, 0) != 0;
            failed += cuMemFreeAsync(4096, 0) != 0;
            _exit(failed == 3 ? 0 : 1);
        }
        waitpid(child, &status, 0);
        whole += WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (WIFSIGNALED(status)) break;
    }
    is_over = 1;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    printf("%d children\n", whole);
    return 0;
}
