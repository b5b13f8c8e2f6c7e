// Fills the device, and is refused.
#include "cuda.h"
static Pointer grid(void) { return take((size_t)3 << 30); }
static int more(void) {
    Pointer pointer;
    return cuMemAlloc_v2(&pointer, (size_t)5 << 30);
}
int main(void) {
    begin();
    Pointer pointer = grid();
    printf("%d\n", more());
    cuMemFree_v2(pointer);
    return 0;
}
