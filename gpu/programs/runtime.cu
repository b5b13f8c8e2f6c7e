// The runtime's allocating calls: linear, pitched, arrays, pinned and registered host memory, a kernel over them.
// Built twice, with the static runtime (nvcc's default) and with the shared one.
#include "check.cuh"
#include <vector>

__global__ void add(int* x, int by, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] += by;
}

int main() {
  const int count = 1 << 20;
  int *device, *pinned;
  CHECK(cudaMalloc(&device, count * sizeof(int)));
  CHECK(cudaHostAlloc(&pinned, count * sizeof(int), cudaHostAllocDefault));
  for (int i = 0; i < count; ++i) pinned[i] = i % 1000;
  CHECK(cudaMemcpy(device, pinned, count * sizeof(int), cudaMemcpyHostToDevice));
  add<<<count / 256, 256>>>(device, 3, count);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(pinned, device, count * sizeof(int), cudaMemcpyDeviceToHost));
  long long sum = 0;
  for (int i = 0; i < count; ++i) sum += pinned[i];
  std::printf("sum %lld\n", sum);

  void* rows;
  size_t pitch;
  CHECK(cudaMallocPitch(&rows, &pitch, 1000, 300));
  CHECK(cudaMemset2D(rows, pitch, 7, 1000, 300));
  cudaPitchedPtr cube;
  CHECK(cudaMalloc3D(&cube, make_cudaExtent(100, 20, 3)));
  cudaArray_t image;
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  CHECK(cudaMallocArray(&image, &format, 640, 480));
  std::vector<char> ordinary(1 << 20);
  CHECK(cudaHostRegister(ordinary.data(), ordinary.size(), cudaHostRegisterDefault));
  CHECK(cudaHostUnregister(ordinary.data()));

  for (int i = 1; i <= 100; ++i) {
    void* block;
    CHECK(cudaMalloc(&block, i * 100000));
    CHECK(cudaFree(block));
  }
  CHECK(cudaFreeArray(image));
  CHECK(cudaFree(cube.ptr));
  CHECK(cudaFree(rows));
  CHECK(cudaFreeHost(pinned));
  CHECK(cudaFree(device));
  std::printf("100 blocks came and went\n");
  return 0;
}
