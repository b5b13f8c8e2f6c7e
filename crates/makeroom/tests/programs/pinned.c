// Pins more host memory than the machine has, and goes on without it.
#include "cuda.h"
static int stage(size_t bytes) {
    Handle buffer;
    return cuMemHostAlloc(&buffer, bytes, 0);
}
int main(void) {
    begin();
    cuMemFree_v2(take(1 << 20));
    return stage((size_t)1 << 40) == 2 ? 0 : 1;
}
