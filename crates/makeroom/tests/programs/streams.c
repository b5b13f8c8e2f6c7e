// Gives memory back on four streams and asks outside of their pool, without waiting.
#include "cuda.h"
int main(void) {
    Handle streams[4];
    Pointer pointers[4];
    begin();
    for (int i = 0; i < 4; i++)
        if (cuStreamCreate(&streams[i], 0) || cuMemAllocAsync(&pointers[i], 4 << 20, streams[i])) return 1;
    for (int i = 0; i < 4; i++) cuMemFreeAsync(pointers[i], streams[i]);
    cuMemFree_v2(take(32 << 20));
    return 0;
}
