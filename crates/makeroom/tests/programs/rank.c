// One rank of a job that any launcher starts, each on its own GPU of eight: `rank HEAVY` takes 1 GiB, and the rank HEAVY
// then more than its GPU has.
// The others wait for the launcher to end them, as ranks in a collective do, but not forever.
#include "cuda.h"
#include <signal.h>
#include <unistd.h>

// What the launchers call it: torchrun and Ray Train, Open MPI, MPICH, Slurm, an indexed Job of Kubernetes.
static const char *NAMES[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX"};

static int find_rank(void) {
    for (size_t index = 0; index < sizeof NAMES / sizeof *NAMES; index++) {
        const char *value = getenv(NAMES[index]);
        if (value) return atoi(value);
    }
    return 0;
}

static void ended(int number) { exit(128 + number); }

static int activations(size_t bytes) {
    Pointer pointer;
    return cuMemAlloc_v2(&pointer, bytes);
}

int main(int count, char **arguments) {
    int rank = find_rank(), heavy = count > 1 ? atoi(arguments[1]) : -1;
    Handle context;
    signal(SIGTERM, ended);
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, rank % 8) || cuCtxSetCurrent(context)) return 97;
    if (activations((size_t)1 << 30)) return 96;
    if (rank == heavy && activations((size_t)100 << 30)) {
        // The others must have allocated theirs.
        usleep(500000);
        fprintf(stderr, "rank %d: out of memory\n", rank);
        return 1;
    }
    if (heavy >= 0) sleep(20);
    return 0;
}
