// Buffers freed with cudaFreeAsync stay in the driver's pool until their stream has reached the free and the program
// synchronizes: cudaMalloc cannot use them before.
//
//     ./streams           fails
//     ./streams fixed     waits for the streams, and returns what the pool caches to the GPU
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

enum { STREAMS = 4 };
static const size_t MIB = 1 << 20;

static void step(cudaStream_t stream) {
    void *buffer;
    if (cudaMallocAsync(&buffer, 256 * MIB, stream) != cudaSuccess) return;
    cudaMemsetAsync(buffer, 0, 256 * MIB, stream);
    cudaFreeAsync(buffer, stream);
}

int main(int count, char **arguments) {
    int is_fixed = count > 1 && strcmp(arguments[1], "fixed") == 0;
    void *weights, *large;
    if (cudaMalloc(&weights, 640 * MIB) != cudaSuccess) {
        puts("the weights do not fit");
        return 1;
    }
    cudaStream_t streams[STREAMS];
    for (int i = 0; i < STREAMS; ++i) cudaStreamCreate(&streams[i]);
    for (int i = 0; i < STREAMS; ++i) step(streams[i]);
    if (is_fixed)
        for (int i = 0; i < STREAMS; ++i) cudaStreamSynchronize(streams[i]);
    cudaError_t status = cudaMalloc(&large, 768 * MIB);
    puts(status == cudaSuccess ? "768 MiB allocated" : "768 MiB failed");
    if (status == cudaSuccess) cudaFree(large);
    for (int i = 0; i < STREAMS; ++i) cudaStreamDestroy(streams[i]);
    cudaFree(weights);
    return status != cudaSuccess;
}
