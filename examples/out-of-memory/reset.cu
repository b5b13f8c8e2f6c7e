// cudaDeviceReset releases everything that this process holds, also memory that it forgot.
#include <cuda_runtime.h>

int main(void) {
    void *forgotten;
    if (cudaMalloc(&forgotten, 256 << 20) != cudaSuccess) return 1;
    return cudaDeviceReset() != cudaSuccess;
}
