// Managed memory: a little of it, written by both sides.
#include "check.cuh"

__global__ void twice(int* x, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] *= 2;
}

int main() {
  const int count = 4 << 20;
  int* both;
  CHECK(cudaMallocManaged(&both, count * sizeof(int)));
  for (int i = 0; i < count; ++i) both[i] = i % 7;
  twice<<<count / 256, 256>>>(both, count);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  long long sum = 0;
  for (int i = 0; i < count; ++i) sum += both[i];
  std::printf("sum %lld\n", sum);
  CHECK(cudaFree(both));
  return 0;
}
