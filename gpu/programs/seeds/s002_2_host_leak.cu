#include <cuda_runtime.h>
#include <algorithm>
#include <cstdlib>
#include <iostream>

// The article's program is `once`. Done once it leaks 4 MiB, and it never writes what it leaks, so that the system never
// gives it pages. Arguments: how often to do it, and `fill` to write the buffer first.
int once(bool fill) {
  int size = 1024 * 1024;
  float* h_data = new float[size]; // Memory allocated on the host
  if (fill) std::fill(h_data, h_data + size, 1.0f);
  float* d_data;
  cudaMalloc((void**)&d_data, size * sizeof(float));
  cudaMemcpy(d_data, h_data, size * sizeof(float), cudaMemcpyHostToDevice);


  // ... some CUDA operations ...

  cudaFree(d_data);  // Device memory released
  // Missing: delete[] h_data; // Host memory leak!

  // ... further code execution that might fail due to lack of free host memory ...
  return 0;
}

int main(int argc, char** argv) {
  int repetitions = argc > 1 ? std::atoi(argv[1]) : 1;
  for (int i = 0; i < repetitions; ++i) {
    once(argc > 2);
  }
  return 0;
}
