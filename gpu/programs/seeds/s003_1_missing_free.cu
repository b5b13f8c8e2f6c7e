#include <cuda_runtime.h>
#include <iostream>

int main() {
    cudaError_t err;
    float *dev_ptr;
    size_t size = 1024 * 1024 * 1024; // 1GB

    try {
        err = cudaMalloc((void**)&dev_ptr, size);
        if (err != cudaSuccess) {
            throw std::runtime_error("cudaMalloc failed");
        }
        // ...some computation using dev_ptr...
    } catch (const std::runtime_error& e) {
        std::cerr << "Error: " << e.what() << std::endl;
        // Missing cudaFree(dev_ptr)
    }

    // cudaFree(dev_ptr) is crucial here, even if an exception is thrown

    return 0;
}
