#include <cuda_runtime.h>

int main() {
    cudaError_t err;
    cudaFree(nullptr); // This doesn't actually free anything.
    cudaDeviceReset(); // Attempting to reset the context is not always enough.
    return 0;
}
