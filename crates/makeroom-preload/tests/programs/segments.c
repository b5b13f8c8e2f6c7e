// What libc10_cuda.so and libnccl.so do: memory from the driver, for themselves.
#include "cuda.h"

CUdeviceptr segment(size_t bytes) {
    CUdeviceptr pointer;
    OK(cuMemAlloc_v2(&pointer, bytes));
    return pointer;
}
