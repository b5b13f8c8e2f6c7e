// Does `cuCtxRecordEvent` cover the work of all streams, also of non-blocking ones, and what does it cost?
// Prints one line of JSON.
#include "check.cuh"
#include <chrono>
#include <cuda.h>
#include <cuda_runtime.h>
#include <vector>

__global__ void spin(volatile int *go) {
  while (*go == 0) {
  }
}

static double microseconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - since).count();
}

int main() {
  CHECK(cudaFree(0));
  CUcontext context;
  CHECK(cuCtxGetCurrent(&context));
  volatile int *go;
  CHECK(cudaHostAlloc((void **)&go, 2 * sizeof *go, cudaHostAllocMapped));
  std::vector<cudaStream_t> streams(8);
  for (auto &stream : streams) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUevent event;
  CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  // One kernel per stream spins until it is told to end: the event is not done while any of them runs.
  int covered = 0;
  for (auto stream : streams) {
    go[0] = 0;
    spin<<<1, 1, 0, stream>>>(go);
    CHECK(cuCtxRecordEvent(context, event));
    bool is_early = cuEventQuery(event) == CUDA_SUCCESS;
    go[0] = 1;
    CHECK(cudaStreamSynchronize(stream));
    covered += !is_early && cuEventQuery(event) == CUDA_SUCCESS;
  }
  // Work submitted after the event does not delay it.
  go[0] = 0;
  go[1] = 0;
  spin<<<1, 1, 0, streams[0]>>>(go);
  CHECK(cuCtxRecordEvent(context, event));
  spin<<<1, 1, 0, streams[1]>>>(go + 1);
  go[0] = 1;
  CHECK(cudaStreamSynchronize(streams[0]));
  bool is_independent = cuEventQuery(event) == CUDA_SUCCESS;
  go[1] = 1;
  CHECK(cudaDeviceSynchronize());
  const int times = 2000;
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) CHECK(cuCtxRecordEvent(context, event));
  double record_us = microseconds(start) / times;
  start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) cuEventQuery(event);
  double query_us = microseconds(start) / times;
  // During a capture: the status of the call, and whether the capture survives it.
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeRelaxed));
  CUresult in_capture = cuCtxRecordEvent(context, event);
  cudaError_t ended = cudaStreamEndCapture(streams[0], &graph);
  std::printf("{\"streams\": %d, \"covered\": %d, \"independent\": %s, \"record_us\": %.2f, \"query_us\": %.2f, "
              "\"in_capture\": %d, \"capture_ended\": %d}\n",
              int(streams.size()), covered, is_independent ? "true" : "false", record_us, query_us, int(in_capture), int(ended));
  return 0;
}
