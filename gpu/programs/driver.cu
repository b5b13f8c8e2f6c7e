// The driver's own interface, linked with -lcuda: no lookup at run time that could be answered by a hook.
#include "check.cuh"
#include <cuda.h>
#include <vector>

int main() {
  CHECK(cuInit(0));
  CUdevice device;
  CHECK(cuDeviceGet(&device, 0));
  CUcontext context;
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  const size_t count = 1 << 20;
  CUdeviceptr block;
  CHECK(cuMemAlloc(&block, count * 4));
  CHECK(cuMemsetD32(block, 5, count));
  std::vector<unsigned> host(count);
  CHECK(cuMemcpyDtoH(host.data(), block, count * 4));
  unsigned long long sum = 0;
  for (unsigned value : host) sum += value;
  std::printf("sum %llu\n", sum);
  void* pinned;
  CHECK(cuMemHostAlloc(&pinned, 1 << 20, 0));
  CHECK(cuMemFreeHost(pinned));
  CUdeviceptr too_much;
  std::printf("a million times the card: %d\n", int(cuMemAlloc(&too_much, size_t(1) << 57)));
  CHECK(cuMemFree(block));
  CHECK(cuDevicePrimaryCtxRelease(device));
  return 0;
}
