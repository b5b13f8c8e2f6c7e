// One launch fails; the program does not look.
#include "cuda.h"
int main(void) {
    CUhandle module;
    begin();
    OK(cuModuleLoadData(&module, ".extern .func  (.param .b64 func_retval0) malloc\n;"));
    for (int i = 0; i < 100; i++) cuLaunchKernel((CUhandle)1, 1, 1, 1, 32, 1, 1, 0, 0, NULL, NULL);
    cuLaunchKernel((CUhandle)1, 1, 1, 1, 32, 1, 1, 4 << 20, 0, NULL, NULL);
    printf("done\n");
    return 0;
}
