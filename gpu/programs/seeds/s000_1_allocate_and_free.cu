#include <cuda_runtime.h>
#include <iostream>

void allocate_and_free(size_t size) {
  float* device_ptr;
  cudaError_t err = cudaMalloc(&device_ptr, size * sizeof(float));
  if (err != cudaSuccess) {
    std::cerr << "cudaMalloc failed: " << cudaGetErrorString(err) << std::endl;
    return;
  }

  err = cudaMemset(device_ptr, 0, size * sizeof(float));
    if (err != cudaSuccess) {
        std::cerr << "cudaMemset failed: " << cudaGetErrorString(err) << std::endl;
        cudaFree(device_ptr);
        return;
  }

  cudaFree(device_ptr);
}

int main() {
  // Repeatedly allocate and free different sized chunks
  allocate_and_free(1024);
  allocate_and_free(2048);
  allocate_and_free(1536);
  allocate_and_free(4096);
  allocate_and_free(512);
  allocate_and_free(2048);
  allocate_and_free(1024);

  //Attempt to allocate a large array
  float *large_ptr;
  cudaError_t err = cudaMalloc(&large_ptr, 8 * 1024 * 1024 * sizeof(float));
   if(err != cudaSuccess) {
      std::cerr << "Large allocation failed, despite apparent free space. Error: " << cudaGetErrorString(err) << std::endl;
      return 1;
   }
    cudaFree(large_ptr);

  return 0;
}
