// Runs a program on a terminal of its own, of 24 rows and 80 columns, in the foreground, and passes on what it writes.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char **words) {
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    if (terminal < 0 || grantpt(terminal) || unlockpt(terminal) || ioctl(terminal, TIOCSWINSZ, &size)) return 98;
    pid_t child = fork();
    if (child == 0) {
        setsid();
        int end = open(ptsname(terminal), O_RDWR);
        for (int i = 0; i < 3; i++) dup2(end, i);
        close(end), close(terminal);
        execvp(words[1], words + 1);
        _exit(97);
    }
    char buffer[4096];
    ssize_t length;
    while ((length = read(terminal, buffer, sizeof buffer)) > 0) write(1, buffer, length);
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 96;
}
