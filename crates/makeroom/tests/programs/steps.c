// Each step takes a batch and gives it back, and keeps its result, all through one function that asks.
#include "cuda.h"
static Pointer take_or_end(size_t bytes) {
    Pointer pointer;
    if (cuMemAlloc_v2(&pointer, bytes)) exit(0);
    return pointer;
}
static Pointer load_batch(int step) { return take_or_end((size_t)(8 + step % 3) << 20); }
static void keep_result(void) { take_or_end(32 << 20); }
int main(void) {
    begin();
    for (int step = 0;; step++) {
        Pointer batch = load_batch(step);
        keep_result();
        cuMemFree_v2(batch);
    }
}
