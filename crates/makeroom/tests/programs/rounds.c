// Takes and gives back 256 MiB again and again until it is refused, and keeps 32 MiB: of every round, or, with WEIGHTS, so
// many times before the first of them.
#include "cuda.h"
static Pointer keep(void) { return take((size_t)32 << 20); }
int main(void) {
    Pointer work;
    begin();
#ifdef WEIGHTS
    for (int layer = 0; layer < WEIGHTS; layer++) keep();
    for (int round = 0; round < 100; round++) {
        if (cuMemAlloc_v2(&work, (size_t)256 << 20)) return 1;
        cuMemFree_v2(work);
    }
    return cuMemAlloc_v2(&work, (size_t)7 << 30) != 2;
#else
    while (!cuMemAlloc_v2(&work, (size_t)256 << 20)) {
        cuMemFree_v2(work);
        keep();
    }
    return 0;
#endif
}
