// Starts a kernel with 4 MiB of shared memory, and does not look whether it started.
#include "cuda.h"
static void smooth(Handle kernel) { cuLaunchKernel(kernel, 4096, 1, 1, 256, 1, 1, 4 << 20, 0, NULL, NULL); }
int main(void) {
    Handle module, kernel;
    begin();
    Pointer input = take(4 << 20);
    if (cuModuleLoadData(&module, ".visible .entry _Z32kernel_with_intermediate_buffersPfS_i()")) return 1;
    if (cuModuleGetFunction(&kernel, module, "_Z32kernel_with_intermediate_buffersPfS_i")) return 2;
    smooth(kernel);
    smooth(kernel);
    cuMemFree_v2(input);
    return 0;
}
