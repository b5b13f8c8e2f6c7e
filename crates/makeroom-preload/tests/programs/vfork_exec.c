// Children of vfork execute, fail to, and end, while threads of the parent go on allocating.
#define _GNU_SOURCE
#include "cuda.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
enum { THREADS = 4, CHILDREN = 100 };
static CUhandle context;
static volatile int is_over;
static int rounds[THREADS];
static void *work(void *number) {
    OK(cuCtxSetCurrent(context));
    while (!is_over && rounds[(long)number] < 2000) {
        round_trip(512);
        rounds[(long)number]++;
        usleep(20);
    }
    return NULL;
}
int main(void) {
    pthread_t threads[THREADS];
    int ends[3] = {0}, sum = 0;
    context = begin();
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        round_trip(1 << 10);
        pid_t pid = vfork();
        if (pid == 0) {
            if (i % 3 == 0) execlp("true", "true", NULL);
            if (i % 3 == 1) execl("/no/such/program", "x", NULL);
            _exit(i % 3);
        }
        waitpid(pid, &status, 0);
        ends[WEXITSTATUS(status)]++;
    }
    is_over = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL), sum += rounds[i];
    printf("%d %d %d\n", ends[0], ends[1], ends[2]);
    fprintf(fopen("rounds", "w"), "%d", sum + CHILDREN);
    return 0;
}
