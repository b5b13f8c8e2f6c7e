// The part of the runtime's interface that the programs without kernels use; cudart.c implements it for the software GPU,
// on which NVIDIA's own runtime does not start.
#pragma once
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
typedef enum { cudaSuccess = 0 } cudaError_t;
typedef enum { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 } cudaMemcpyKind;
typedef struct CUstream_st *cudaStream_t;
cudaError_t cudaMalloc(void **, size_t);
cudaError_t cudaFree(void *);
cudaError_t cudaMallocHost(void **, size_t);
cudaError_t cudaFreeHost(void *);
cudaError_t cudaMemset(void *, int, size_t);
cudaError_t cudaMemsetAsync(void *, int, size_t, cudaStream_t);
cudaError_t cudaMemcpy(void *, const void *, size_t, cudaMemcpyKind);
cudaError_t cudaMemGetInfo(size_t *, size_t *);
cudaError_t cudaMallocAsync(void **, size_t, cudaStream_t);
cudaError_t cudaFreeAsync(void *, cudaStream_t);
cudaError_t cudaStreamCreate(cudaStream_t *);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaGetLastError(void);
const char *cudaGetErrorString(cudaError_t);
cudaError_t cudaDeviceReset(void);
#ifdef __cplusplus
}
// The runtime's own header has the same overloads.
template <typename T> cudaError_t cudaMalloc(T **block, size_t bytes) { return cudaMalloc((void **)block, bytes); }
template <typename T> cudaError_t cudaMallocAsync(T **block, size_t bytes, cudaStream_t stream) {
  return cudaMallocAsync((void **)block, bytes, stream);
}
#endif
