// A kernel that asks for 4 MiB of shared memory per block. The launch fails, and nothing says so unless the program
// checks; the buffer that it should have filled is empty. It has nothing to do with the GPU's global memory.
//
//     ./shared-memory           requests 4 MiB per block
//     ./shared-memory fixed     uses tiles of 64 KiB, and allows the kernel more than the default of 48 KiB
#include <cuda.h>
#include <stdio.h>
#include <string.h>

static const char *CODE = ".version 6.0\n.target sm_50\n.address_size 64\n"
                          ".visible .entry blur(.param .u64 image) { ret; }\n";

int main(int count, char **arguments) {
    int is_fixed = count > 1 && strcmp(arguments[1], "fixed") == 0;
    unsigned tile = is_fixed ? 64 << 10 : 4 << 20;
    CUcontext context;
    CUmodule module;
    CUfunction blur;
    CUdeviceptr image;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    if (cuModuleLoadData(&module, CODE) || cuModuleGetFunction(&blur, module, "blur")) return 1;
    if (cuMemAlloc(&image, 16 << 20)) return 1;
    if (is_fixed) cuFuncSetAttribute(blur, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, tile);
    void *parameters[] = {&image};
    cuLaunchKernel(blur, 256, 1, 1, 256, 1, 1, tile, NULL, parameters, NULL);
    cuCtxSynchronize();
    puts("done");
    cuMemFree(image);
    return 0;
}
