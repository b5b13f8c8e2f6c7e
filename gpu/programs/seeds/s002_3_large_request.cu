#include <cuda_runtime.h>
#include <iostream>

int main() {
  int size = 1024 * 1024 * 1024; // Very large size for demonstration
  float* d_data;

  // Attempting to allocate a huge chunk of memory on the GPU at once.
  cudaMalloc((void**)&d_data, size * sizeof(float));

  // ... further operations that would never be reached due to insufficient memory.
  // If your GPU doesn't have enough memory this line will generate error
  cudaFree(d_data);
  return 0;
}
