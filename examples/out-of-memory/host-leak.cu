// Leaks host memory, not GPU memory: each round forgets the array from which it copied.
#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    const size_t bytes = 4 << 20;
    for (int round = 0; round < 20; ++round) {
        void *on_host = malloc(bytes), *on_gpu;
        memset(on_host, 1, bytes);
        if (cudaMalloc(&on_gpu, bytes) != cudaSuccess) return 1;
        cudaMemcpy(on_gpu, on_host, bytes, cudaMemcpyHostToDevice);
        cudaFree(on_gpu);
    }
    return 0;
}
