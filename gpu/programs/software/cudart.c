// The runtime's functions in cuda_runtime.h, on top of the driver: enough for the programs without kernels.
#include "cuda_runtime.h"
#include "cuda.h"

static cudaError_t last;

static cudaError_t result(CUresult status) {
  if (status) last = (cudaError_t)status;
  return (cudaError_t)status;
}

// As the runtime does: the primary context of the first device, with the first call that needs one.
static void begin(void) {
  static int is_ready;
  CUcontext context;
  if (!is_ready) is_ready = !cuInit(0) && !cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxSetCurrent(context);
}

cudaError_t cudaMalloc(void **block, size_t bytes) {
  begin();
  return result(cuMemAlloc((CUdeviceptr *)block, bytes));
}
cudaError_t cudaFree(void *block) {
  begin();
  return block ? result(cuMemFree((CUdeviceptr)block)) : cudaSuccess;
}
cudaError_t cudaMallocHost(void **block, size_t bytes) {
  begin();
  return result(cuMemHostAlloc(block, bytes, 0));
}
cudaError_t cudaFreeHost(void *block) { return result(cuMemFreeHost(block)); }
cudaError_t cudaMemset(void *block, int value, size_t bytes) {
  return result(cuMemsetD8((CUdeviceptr)block, (unsigned char)value, bytes));
}
cudaError_t cudaMemsetAsync(void *block, int value, size_t bytes, cudaStream_t stream) {
  return result(cuMemsetD8Async((CUdeviceptr)block, (unsigned char)value, bytes, stream));
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  begin();
  return result(kind == cudaMemcpyHostToDevice ? cuMemcpyHtoD((CUdeviceptr)to, from, bytes)
                                               : cuMemcpyDtoH(to, (CUdeviceptr)from, bytes));
}
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  begin();
  return result(cuMemGetInfo(free, total));
}
cudaError_t cudaMallocAsync(void **block, size_t bytes, cudaStream_t stream) {
  begin();
  return result(cuMemAllocAsync((CUdeviceptr *)block, bytes, stream));
}
cudaError_t cudaFreeAsync(void *block, cudaStream_t stream) { return result(cuMemFreeAsync((CUdeviceptr)block, stream)); }
cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  begin();
  return result(cuStreamCreate(stream, 0));
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return result(cuStreamSynchronize(stream)); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return result(cuStreamDestroy(stream)); }
cudaError_t cudaGetLastError(void) {
  cudaError_t error = last;
  last = cudaSuccess;
  return error;
}
const char *cudaGetErrorString(cudaError_t error) { return error ? "error" : "no error"; }
cudaError_t cudaDeviceReset(void) {
  begin();
  return result(cuDevicePrimaryCtxReset(0));
}
