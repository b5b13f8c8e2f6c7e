// A graph with memory nodes, made by capturing stream-ordered calls, and launched many times.
#include "check.cuh"

__global__ void fill(int* x, int value, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] = value;
}

__global__ void gather(const int* x, int count, unsigned long long* sum) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) atomicAdd(sum, (unsigned long long)x[i]);
}

int main() {
  const int count = 1 << 20;
  unsigned long long* sum;
  CHECK(cudaMalloc(&sum, sizeof *sum));
  CHECK(cudaMemset(sum, 0, sizeof *sum));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  int* block;
  CHECK(cudaMallocAsync(&block, count * sizeof(int), stream));
  fill<<<count / 256, 256, 0, stream>>>(block, 2, count);
  gather<<<count / 256, 256, 0, stream>>>(block, count, sum);
  CHECK(cudaFreeAsync(block, stream));
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t program;
  CHECK(cudaGraphInstantiate(&program, graph, 0));
  for (int i = 0; i < 10; ++i) CHECK(cudaGraphLaunch(program, stream));
  CHECK(cudaStreamSynchronize(stream));
  unsigned long long result;
  CHECK(cudaMemcpy(&result, sum, sizeof result, cudaMemcpyDeviceToHost));
  std::printf("sum %llu\n", result);
  CHECK(cudaGraphExecDestroy(program));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaDeviceGraphMemTrim(0));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(sum));
  return 0;
}
