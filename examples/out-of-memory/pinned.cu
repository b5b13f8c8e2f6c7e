// Pinned memory is host memory that the GPU can read directly. It speeds up copies, and takes no GPU memory; but each
// buffer stays resident until it is freed, so that a loader that pins every batch fills the host instead.
//
//     ./pinned           pins a new buffer for each batch
//     ./pinned fixed     uses one buffer again
#include <cuda_runtime.h>
#include <string.h>

int main(int count, char **arguments) {
    int is_fixed = count > 1 && strcmp(arguments[1], "fixed") == 0;
    const size_t bytes = 32 << 20;
    void *on_gpu, *pinned = NULL;
    if (cudaMalloc(&on_gpu, bytes) != cudaSuccess) return 1;
    for (int batch = 0; batch < 16; ++batch) {
        if (!(pinned && is_fixed) && cudaMallocHost(&pinned, bytes) != cudaSuccess) return 1;
        memset(pinned, batch, bytes);
        cudaMemcpy(on_gpu, pinned, bytes, cudaMemcpyHostToDevice);
    }
    if (is_fixed) cudaFreeHost(pinned);
    cudaFree(on_gpu);
    return 0;
}
