// What libc10_cuda.so and libnccl.so do: memory from the driver, for themselves.
#include "cuda.h"
CUresult cuMemExportToShareableHandle(void *, CUdeviceptr, int, uint64_t);

CUdeviceptr segment(size_t bytes) {
    CUdeviceptr pointer;
    OK(cuMemAlloc_v2(&pointer, bytes));
    return pointer;
}

void export_page(CUdeviceptr page) {
    int descriptor;
    OK(cuMemExportToShareableHandle(&descriptor, page, 1, 0));
}
