// Loads a kernel that calls malloc, and leaves its heap as it is.
#include "cuda.h"
int main(void) {
    Handle module;
    begin();
    cuMemFree_v2(take(1 << 20));
    return cuModuleLoadData(&module, ".extern .func  (.param .b64 func_retval0) malloc\n;");
}
