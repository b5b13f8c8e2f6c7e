// Virtual memory: one range of addresses over several physical pieces, grown and shrunk, read across the seams.
#include "check.cuh"
#include <cuda.h>
#include <vector>

int main() {
  CHECK(cuInit(0));
  CUcontext context;
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = 0;
  size_t piece;
  CHECK(cuMemGetAllocationGranularity(&piece, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  const int pieces = 16;
  CUdeviceptr range;
  CHECK(cuMemAddressReserve(&range, pieces * piece, 0, 0, 0));
  std::vector<CUmemGenericAllocationHandle> handles(pieces);
  for (int i = 0; i < pieces; ++i) {
    CHECK(cuMemCreate(&handles[i], piece, &properties, 0));
    CHECK(cuMemMap(range + i * piece, piece, 0, handles[i], 0));
  }
  CUmemAccessDesc access = {};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK(cuMemSetAccess(range, pieces * piece, &access, 1));
  CHECK(cuMemsetD8(range, 3, pieces * piece));
  std::vector<unsigned char> host(pieces * piece);
  CHECK(cuMemcpyDtoH(host.data(), range, host.size()));
  unsigned long long sum = 0;
  for (unsigned char value : host) sum += value;
  std::printf("sum %llu\n", sum);
  for (int i = 0; i < pieces; ++i) {
    CHECK(cuMemUnmap(range + i * piece, piece));
    CHECK(cuMemRelease(handles[i]));
  }
  CHECK(cuMemAddressFree(range, pieces * piece));
  CHECK(cuDevicePrimaryCtxRelease(0));
  return 0;
}
