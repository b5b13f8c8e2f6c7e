#include <cuda_runtime.h>
#include <iostream>

int main() {
    int num_streams = 4;
    cudaStream_t streams[num_streams];
    
    for (int i = 0; i < num_streams; ++i) {
        cudaStreamCreate(&streams[i]);
    }

    int size = 1024 * 1024;
    float* device_ptrs[num_streams];

    for (int i = 0; i < num_streams; ++i) {
        cudaError_t err = cudaMallocAsync(&device_ptrs[i], size * sizeof(float), streams[i]);
        if (err != cudaSuccess) {
          std::cerr << "cudaMallocAsync failed on stream " << i << ". Error: " << cudaGetErrorString(err) << std::endl;
          return 1;
        }
       cudaMemsetAsync(device_ptrs[i], 0 , size * sizeof(float), streams[i]);
    }

    for (int i = 0; i < num_streams; ++i) {
        cudaStreamSynchronize(streams[i]);
        cudaFreeAsync(device_ptrs[i], streams[i]);
    }

     for (int i = 0; i < num_streams; ++i) {
        cudaStreamDestroy(streams[i]);
    }


    float* large_ptr;
    cudaError_t err = cudaMalloc(&large_ptr, 8 * 1024 * 1024 * sizeof(float));
     if (err != cudaSuccess) {
      std::cerr << "Large allocation failed after streams. Error: " << cudaGetErrorString(err) << std::endl;
      return 1;
    }
    cudaFree(large_ptr);
    return 0;
}
