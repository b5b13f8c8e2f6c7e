// Does what its arguments say, one after the other: `alloc 100 sleep 300 closefrom fill exit 9`.
#define _GNU_SOURCE
#include "../programs/cuda.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static char **word;
static int is(const char *name) { return strcmp(*word, name) == 0; }
static const char *next(void) { return *++word; }
static long number(void) { return atol(next()); }

static void limit(int resource, long value) {
    struct rlimit limits = {value, value};
    setrlimit(resource, &limits);
}

// A file of the program's own, under every number that is not standard input, output or error.
static void occupy(const char *path) {
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int other = 3; other < 1024; other++)
        if (other != file) dup2(file, other);
}

// Closes what is listed in /proc, as daemons do that know no closefrom.
static void close_listed(void) {
    DIR *list = opendir("/proc/self/fd");
    struct dirent *entry;
    while (list && (entry = readdir(list)))
        if (atoi(entry->d_name) > 2 && atoi(entry->d_name) != dirfd(list)) close(atoi(entry->d_name));
    if (list) closedir(list);
}

// Closes and opens descriptors all the time.
static void *churn(void *path) {
    for (;;) {
        int file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
        for (int other = 3; other < 600; other++) dup2(file, other);
        closefrom(3);
    }
    return 0;
}

int main(int count, char **words) {
    Handle context;
    Pointer pointer;
    int result;
    if (cuInit(0) || cuCtxCreate_v2(&context, 0, 0)) return 99;
    for (word = words + 1; *word; word++) {
        if (is("alloc")) {
            for (long left = number(); left > 0; left--)
                if (!cuMemAlloc_v2(&pointer, 4096 + 512 * (rand() % 1000))) cuMemFree_v2(pointer);
        } else if (is("fill")) {
            long taken = 0;
            while (!(result = cuMemAlloc_v2(&pointer, 256 << 20))) taken++;
            printf("refused %d after %ld\n", result, taken);
            fflush(stdout);
        } else if (is("retry")) {
            Pointer last = 0;
            while (!cuMemAlloc_v2(&pointer, 256 << 20)) last = pointer;
            cuMemFree_v2(last);
            if (cuMemAlloc_v2(&pointer, 256 << 20)) return 97;
        } else if (is("sleep")) usleep(1000 * number());
        else if (is("closefrom")) closefrom(3);
        else if (is("close_range")) syscall(SYS_close_range, 3, ~0U, 0);
        else if (is("close_listed")) close_listed();
        else if (is("occupy")) occupy(next());
        else if (is("churn")) {
            pthread_t thread;
            pthread_create(&thread, 0, churn, (void *)next());
        } else if (is("nofile")) limit(RLIMIT_NOFILE, number());
        else if (is("fsize")) limit(RLIMIT_FSIZE, number());
        else if (is("unlink")) unlink(next());
        else if (is("truncate")) truncate(next(), 10);
        else if (is("append")) {
            int file = open(next(), O_WRONLY | O_APPEND);
            write(file, "not from the recorder, and no frame either", 42);
            close(file);
        } else if (is("scribble")) {
            int file = open(next(), O_WRONLY);
            pwrite(file, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, number());
            close(file);
        }
        else if (is("chdir")) chdir(next());
        else if (is("rename")) {
            const char *from = next();
            rename(from, next());
        } else if (is("stderr")) {
            close(2);
            open(next(), O_RDWR | O_CREAT | O_TRUNC, 0600);
        } else if (is("length")) {
            int file = open(next(), O_RDONLY);
            printf("%ld\n", (long)lseek(file, 0, SEEK_END));
            fflush(stdout);
        } else if (is("kill")) syscall(SYS_kill, getpid(), 9);
        else if (is("bare_exit")) syscall(SYS_exit_group, number());
        else if (is("exit")) return number();
        else if (!is("ignored") || !next()) return 98;
    }
    return 0;
}
