// PyTorch's own function behind the hook throws: the exception passes through.
#include "cuda.h"
#include <dlfcn.h>
typedef int (*Allocate)();
int main() {
    begin();
    void *library = dlopen("libc10_cuda.so", RTLD_NOW);
    if (!library) return printf("%s\n", dlerror()), 1;
    printf("%d\n", ((Allocate)dlsym(library, "allocates"))());
    round_trip(1 << 10);
    return 0;
}
