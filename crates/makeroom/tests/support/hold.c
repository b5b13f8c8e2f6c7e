/* Uses the simulated driver in the way its first argument names, prints the number of the process that a test should
   look at, and waits until it is killed. Files of the driver are plain files in ./dev;
   HOLD_CARD is that of the card. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

int cuInit(unsigned), cuCtxCreate_v2(void **, unsigned, int), cuMemAlloc_v2(unsigned long *, size_t);
int cuMemAllocManaged(unsigned long *, size_t, unsigned);
typedef struct { char bytes[64]; } Exchange;
int cuIpcGetMemHandle(Exchange *, unsigned long), cuIpcOpenMemHandle_v2(unsigned long *, Exchange, unsigned);

static int files(void) {
    open("dev/nvidiactl", O_RDWR);
    open("dev/nvidia-uvm", O_RDWR);
    return open(getenv("HOLD_CARD"), O_RDWR);
}

static void context(size_t size) {
    void *created;
    unsigned long pointer;
    files();
    if (cuInit(0) || cuCtxCreate_v2(&created, 0, 0)) exit(90);
    if (size && cuMemAlloc_v2(&pointer, size)) exit(91);
}

static void ready(int pid) {
    printf("%d\n", pid);
    fflush(stdout);
}

static void wait_for_ever(void) {
    for (;;) pause();
}

static void *other_thread(void *nothing) {
    ready(getpid());
    wait_for_ever();
    return nothing;
}

int main(int count, char **words) {
    const char *mode = count > 1 ? words[1] : "";
    size_t size = count > 2 ? strtoul(words[2], 0, 10) << 20 : 0;
    if (!strcmp(mode, "memory")) {
        context(size);
    } else if (!strcmp(mode, "recorded")) {
        context(size);
        sleep(1); /* the recorder writes ten times a second */
    } else if (!strcmp(mode, "fails")) { /* more than the card has, when a line comes */
        unsigned long pointer;
        context(size);
        ready(getpid());
        getchar();
        if (!cuMemAlloc_v2(&pointer, 1ul << 40)) exit(92);
        creat("failed", 0600);
        if (count > 3) return 1;
        wait_for_ever();
    } else if (!strcmp(mode, "managed")) {
        unsigned long pointer;
        context(0);
        if (cuMemAllocManaged(&pointer, size, 1)) return 92;
        sleep(1); /* the recorder writes ten times a second */
    } else if (!strcmp(mode, "files")) {
        files();
    } else if (!strcmp(mode, "watch")) {
        open("dev/nvidiactl", O_RDWR);
        open(getenv("HOLD_CARD"), O_RDWR);
    } else if (!strcmp(mode, "mapped")) {
        int file = files();
        mmap(0, 4096, PROT_READ, MAP_SHARED, file, 0);
        for (int open_file = 3; open_file < 20; open_file++) close(open_file);
    } else if (!strcmp(mode, "orphan") || !strcmp(mode, "detached")) {
        setpgid(0, 0);
        if (fork()) exit(0);
        /* PyTorch gives its workers this name; a program that a shell left running has its own. */
        if (!strcmp(mode, "orphan")) prctl(PR_SET_NAME, "pt_data_worker");
        files();
    } else if (!strcmp(mode, "imported")) {
        unsigned long pointer, opened;
        Exchange handle;
        context(0);
        if (cuMemAlloc_v2(&pointer, 1 << 20) || cuIpcGetMemHandle(&handle, pointer)) return 94;
        if (cuIpcOpenMemHandle_v2(&opened, handle, 1)) return 95;
        sleep(1); /* the recorder writes ten times a second */
    } else if (!strcmp(mode, "workers")) {
        for (int worker = 0; worker < 3; worker++) {
            if (!fork()) {
                context(0);
                ready(getpid());
                wait_for_ever();
            }
        }
        context(size);
    } else if (!strcmp(mode, "zombie")) {
        int child = fork();
        if (!child) _exit(0);
        files();
        siginfo_t ended;
        waitid(P_PID, child, &ended, WEXITED | WNOWAIT);
        ready(child);
        wait_for_ever();
    } else if (!strcmp(mode, "zombie-thread")) {
        pthread_t thread;
        files();
        pthread_create(&thread, 0, other_thread, 0);
        pthread_exit(0);
    } else if (!strcmp(mode, "uninterruptible")) {
        files();
        ready(getpid());
        if (!vfork()) wait_for_ever();
    } else if (!strcmp(mode, "stopped")) {
        context(size);
        ready(getpid());
        raise(SIGSTOP);
    } else {
        return 93;
    }
    ready(getpid());
    wait_for_ever();
}
