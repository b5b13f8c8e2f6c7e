// A kernel that calls malloc: all of its threads share a heap of 8 MiB, however much of the GPU is free.
//
//     ./kernel-heap           1024 threads request 64 KiB each
//     ./kernel-heap fixed     makes the heap large enough before the first launch
#include <cuda.h>
#include <stdio.h>
#include <string.h>

// Written as nvcc generates it, so that the example needs only the driver.
static const char *CODE =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".extern .func  (.param .b64 func_retval0) malloc\n(\n.param .b64 malloc_param_0\n)\n;\n"
    ".visible .entry scratch(.param .u64 bytes, .param .u64 failed) {\n"
    "  .reg .u64 %bytes, %failed, %found; .reg .pred %is_null; .reg .u32 %old;\n"
    "  ld.param.u64 %bytes, [bytes]; ld.param.u64 %failed, [failed];\n"
    "  { .param .b64 wanted; .param .b64 got; st.param.b64 [wanted], %bytes;\n"
    "    call.uni (got), malloc, (wanted); ld.param.b64 %found, [got]; }\n"
    "  setp.eq.u64 %is_null, %found, 0;\n"
    "  cvta.to.global.u64 %failed, %failed;\n"
    "  @%is_null atom.global.add.u32 %old, [%failed], 1;\n"
    "  ret;\n}\n";

int main(int count, char **arguments) {
    int is_fixed = count > 1 && strcmp(arguments[1], "fixed") == 0;
    unsigned long long bytes = 64 << 10;
    CUcontext context;
    CUmodule module;
    CUfunction scratch;
    CUdeviceptr failed;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    if (is_fixed && cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 1024 * (bytes + 4096))) return 1;
    if (cuModuleLoadData(&module, CODE) || cuModuleGetFunction(&scratch, module, "scratch")) return 1;
    if (cuMemAlloc(&failed, 4) || cuMemsetD32(failed, 0, 1)) return 1;
    void *parameters[] = {&bytes, &failed};
    cuLaunchKernel(scratch, 4, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL);
    cuCtxSynchronize();
    cuMemFree(failed);
    return 0;
}
