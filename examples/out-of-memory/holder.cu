// Takes memory, and keeps it until its input ends: what another program on the same GPU runs into.
//
//     ./holder MIB
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments) {
    void *held;
    size_t mib = count > 1 ? strtoul(arguments[1], NULL, 10) : 1024;
    if (cudaMalloc(&held, mib << 20) != cudaSuccess) return 1;
    puts("holding");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    cudaFree(held);
    return 0;
}
