// Does freeing buffers of many sizes leave gaps into which a large one does not fit? Not with cudaMalloc: memory that was
// freed is available for any size.
#include <cuda_runtime.h>
#include <stdio.h>

int main(void) {
    for (int round = 0; round < 50; ++round) {
        for (size_t kib = 1; kib <= 64 << 10; kib *= 3) {
            void *buffer;
            if (cudaMalloc(&buffer, kib << 10) != cudaSuccess) return 1;
            cudaMemset(buffer, 0, kib << 10);
            cudaFree(buffer);
        }
    }
    size_t unused, total;
    cudaMemGetInfo(&unused, &total);
    void *large;
    // All of it but 64 MiB.
    if (cudaMalloc(&large, unused - (64 << 20)) != cudaSuccess) return 1;
    printf("one buffer of %zu of %zu free MiB\n", (unused >> 20) - 64, unused >> 20);
    cudaFree(large);
    return 0;
}
