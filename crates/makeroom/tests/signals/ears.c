// Counts the signals it receives: writes its parent's process id to "ready", waits for "go", then writes the counts to
// "got". Until then, "heard" has the counts so far. The first argument picks what else it does: "stop" leaves the stop signals at their default action, "group"
// sends SIGUSR1 to its own process group, "parent" sends SIGUSR1 to its parent.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static volatile int counts[65], values[65];
static void count(int signal, siginfo_t *info, void *context) {
    counts[signal]++;
    if (info->si_code == SI_QUEUE) values[signal] = info->si_value.sival_int;
}
static void write_file(const char *name, const char *text) {
    FILE *file = fopen("draft", "w");
    fputs(text, file);
    fclose(file);
    rename("draft", name);
}
static void list(char *text) {
    *text = 0;
    for (int signal = 1; signal <= 64; signal++) {
        if (counts[signal]) text += sprintf(text, "%d:%d ", signal, counts[signal]);
        if (values[signal]) text += sprintf(text, "value %d ", values[signal]);
    }
}
int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    struct sigaction action = {.sa_sigaction = count, .sa_flags = SA_SIGINFO | SA_RESTART};
    for (int signal = 1; signal <= 64; signal++) {
        int stops = signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
        if (signal != SIGCHLD && !(stops && !strcmp(mode, "stop"))) sigaction(signal, &action, NULL);
    }
    char text[4096];
    sprintf(text, "%d %d", getppid(), getpid());
    write_file("ready", text);
    if (!strcmp(mode, "group")) kill(0, SIGUSR1);
    if (!strcmp(mode, "parent")) kill(getppid(), SIGUSR1);
    int written = 0;
    while (access("go", F_OK)) {
        int heard = 0;
        for (int signal = 1; signal <= 64; signal++) heard += counts[signal];
        if (heard != written) {
            list(text);
            write_file("heard", text);
            written = heard;
        }
        usleep(2000);
    }
    list(text);
    write_file("got", text);
    return 0;
}
