// PyTorch shares a tensor of an expandable segment: every page of it is exported as a file descriptor, by libc10_cuda.so. With
// an argument the system forbids pidfd_getfd, with which the other process would fetch them.
#include "cuda.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
CUresult cuDevicePrimaryCtxRetain(CUhandle *, int);
void export_page(CUdeviceptr);

enum { PIDFD_GETFD = 438 };

static void forbid(void) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PIDFD_GETFD, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
}

int main(int count, char **words) {
    struct { int kind, handles, location, device; void *metadata; char flags[8]; } properties = {1, 1, 1, 0, 0, {0}};
    CUhandle primary;
    CUdeviceptr page;
    if (count > 1) forbid();
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    for (int i = 0; i < 3; i++) {
        OK(cuMemCreate(&page, 2 << 20, &properties, 0));
        export_page(page);
    }
    return 0;
}
