// Launches a kernel of a library, which is no function of a context yet, as the runtime does; it does not start.
#include "cuda.h"
CUresult cuLibraryLoadData(CUhandle *, const void *, void *, void *, unsigned, void *, void *, unsigned);
CUresult cuLibraryGetKernel(CUhandle *, CUhandle, const char *);
int main(void) {
    CUhandle library, kernel;
    begin();
    OK(cuLibraryLoadData(&library, ".visible .entry saxpy()", 0, 0, 0, 0, 0, 0));
    OK(cuLibraryGetKernel(&kernel, library, "saxpy"));
    OK(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, 0, NULL, NULL));
    printf("%d\n", cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 4 << 20, 0, NULL, NULL));
    return 0;
}
