// Runs a program on a terminal of its own, as the leader of the terminal's session or, with "shell" as the first argument,
// in a job of its own below that leader, as a shell with job control does. Types the bytes of the file "type" once it
// appears. With "null" as the second argument the program reads /dev/null instead of the terminal. The status of the job
// is written to "stopped" whenever it stops; SIGUSR1 continues it, as `fg` does.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
static pid_t job;
static void to_foreground(int signal) {
    tcsetpgrp(2, job);
    kill(-job, SIGCONT);
}
static int shell(char **argv) {
    signal(SIGTTOU, SIG_IGN);
    signal(SIGUSR1, to_foreground);
    job = fork();
    if (job == 0) {
        setpgid(0, 0);
        tcsetpgrp(2, getpid());
        signal(SIGTTOU, SIG_DFL);
        signal(SIGUSR1, SIG_DFL);
        execvp(argv[0], argv);
        _exit(97);
    }
    int status;
    while (waitpid(job, &status, WUNTRACED) == job) {
        if (!WIFSTOPPED(status)) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        // Before anyone learns that the job has stopped, and continues it.
        tcsetpgrp(2, getpgrp());
        FILE *file = fopen("stopped", "w");
        fprintf(file, "%d", WSTOPSIG(status));
        fclose(file);
    }
    return 95;
}
int main(int argc, char **argv) {
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0 || grantpt(terminal) || unlockpt(terminal)) return 98;
    pid_t child = fork();
    if (child == 0) {
        setsid();
        int end = open(ptsname(terminal), O_RDWR);
        for (int i = 0; i < 3; i++) dup2(end, i);
        close(end), close(terminal);
        if (!strcmp(argv[2], "null")) dup2(open("/dev/null", O_RDONLY), 0);
        if (!strcmp(argv[1], "shell")) _exit(shell(argv + 3));
        execvp(argv[3], argv + 3);
        _exit(97);
    }
    FILE *file = fopen("leader", "w");
    fprintf(file, "%d", child);
    fclose(file);
    fcntl(terminal, F_SETFL, O_NONBLOCK);
    for (;;) {
        char buffer[4096];
        ssize_t length = read(terminal, buffer, sizeof buffer);
        if (length > 0) write(1, buffer, length);
        int keys = open("type", O_RDONLY);
        if (keys >= 0) {
            length = read(keys, buffer, sizeof buffer);
            close(keys);
            unlink("type");
            write(terminal, buffer, length);
        }
        int status;
        if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        usleep(2000);
    }
}
