// Stream-ordered memory: the default pool and one of its own, frees that wait for a kernel, reuse across streams.
#include "check.cuh"

__global__ void wait(long long cycles, int* out) {
  long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
  if (out) *out = 1;
}

int main() {
  cudaStream_t streams[4];
  for (auto& stream : streams) CHECK(cudaStreamCreate(&stream));
  for (int round = 0; round < 50; ++round) {
    int* blocks[4];
    for (int i = 0; i < 4; ++i) {
      CHECK(cudaMallocAsync(&blocks[i], (i + 1) << 20, streams[i]));
      wait<<<1, 1, 0, streams[i]>>>(20000, blocks[i]);
      CHECK(cudaGetLastError());
      CHECK(cudaFreeAsync(blocks[i], streams[i]));
    }
  }
  cudaMemPool_t pool;
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = 0;
  CHECK(cudaMemPoolCreate(&pool, &properties));
  void* block;
  CHECK(cudaMallocFromPoolAsync(&block, 8 << 20, pool, streams[0]));
  CHECK(cudaMemsetAsync(block, 1, 8 << 20, streams[0]));
  CHECK(cudaFreeAsync(block, streams[0]));
  for (auto& stream : streams) {
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
  }
  CHECK(cudaMemPoolTrimTo(pool, 0));
  CHECK(cudaMemPoolDestroy(pool));
  std::printf("200 blocks came and went, and one of a pool\n");
  return 0;
}
