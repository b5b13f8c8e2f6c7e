// One launch fails; the program does not look.
#include "cuda.h"
int main(void) {
    CUhandle module, function;
    begin();
    OK(cuModuleLoadData(&module, ".extern .func  (.param .b64 func_retval0) malloc\n;"));
    OK(cuModuleGetFunction(&function, module, "saxpy"));
    for (int i = 0; i < 100; i++) OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, NULL, NULL));
    printf("%d\n", cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 4 << 20, 0, NULL, NULL));
    return 0;
}
