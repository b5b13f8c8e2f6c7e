#include <cuda_runtime.h>
#include <iostream>

__global__ void kernel_with_intermediate_buffers(float* input, float* output, int size) {
  extern __shared__ float shared[];
  float* temp_buffer = shared;

    for (int i = threadIdx.x; i < size; i += blockDim.x)
    {
      temp_buffer[i] = input[i] * 2.0f;
      output[i] = temp_buffer[i] + 1.0f;

    }

}

int main() {
  int size = 1024 * 1024;
  float *input, *output;
  cudaMalloc(&input, size * sizeof(float));
  cudaMalloc(&output, size * sizeof(float));
  
  cudaMemset(input, 1.0f, size*sizeof(float));
  
  dim3 block(256);
  dim3 grid((size+block.x-1)/block.x);
  kernel_with_intermediate_buffers<<<grid, block, size * sizeof(float)>>>(input, output, size);

  cudaFree(input);
  cudaFree(output);

  // Large allocation after kernel execution
  float* large_ptr;
    cudaError_t err = cudaMalloc(&large_ptr, 8 * 1024 * 1024 * sizeof(float));
    if (err != cudaSuccess) {
      std::cerr << "Large allocation failed, post kernel execution. Error: " << cudaGetErrorString(err) << std::endl;
      return 1;
    }
    cudaFree(large_ptr);

  return 0;
}
