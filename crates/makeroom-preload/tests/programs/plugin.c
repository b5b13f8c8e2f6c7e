// A plugin that is linked with the driver itself.
#include "cuda.h"
int plugin_allocates(void) {
    CUdeviceptr pointer;
    OK(cuMemAlloc_v2(&pointer, 1 << 20));
    return cuMemFree_v2(pointer);
}
