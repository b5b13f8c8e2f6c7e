#include <cuda_runtime.h>
#include <iostream>

__global__ void myKernel(const float* input, float* output, int size) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < size) {
    // Large intermediate array allocation within the kernel
    float* temp = new float[size * size]; // Potential source of error
    // ... processing using temp ...
    delete[] temp;
    output[i] = input[i] * 2.0f;
  }
}

int main() {
  // ... Input data allocation ...
  int size = 1024 * 1024 * 64; // Adjust to experiment with memory needs
  float* d_input, *d_output;
  cudaMalloc((void**)&d_input, size * sizeof(float));
  cudaMalloc((void**)&d_output, size * sizeof(float));

  myKernel<<<(size + 255) / 256, 256>>>(d_input, d_output, size); // Launch Kernel

  // ... Error handling and cleanup ...
  return 0;
}
