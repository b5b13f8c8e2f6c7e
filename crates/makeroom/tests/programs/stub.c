// A launch as nvcc makes it: the program calls what looks like the kernel, which calls its stub. It does not start, and the
// driver does not tell the kernel's name.
#include "cuda.h"
static Handle kernel;
void _Z28__device_stub__Z6smoothPfS_iPfS_i(void) { cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 4 << 20, 0, NULL, NULL); }
void _Z6smoothPfS_i(void) { _Z28__device_stub__Z6smoothPfS_iPfS_i(); }
void filter(void) { _Z6smoothPfS_i(); }
int main(void) {
    Handle module;
    begin();
    if (cuModuleLoadData(&module, ".visible .entry other()") || cuModuleGetFunction(&kernel, module, "other")) return 1;
    filter();
    return 0;
}
