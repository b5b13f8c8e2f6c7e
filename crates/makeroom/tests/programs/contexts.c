// Makes two contexts, destroys one with memory in it and forgets the other.
#include "cuda.h"
static void forget(void) {
    Handle context;
    if (cuCtxCreate_v2(&context, 0, 0)) exit(1);
}
int main(void) {
    Handle first;
    if (cuInit(0) || cuCtxCreate_v2(&first, 0, 0)) return 1;
    take(48 << 20);
    cuCtxDestroy_v2(first);
    forget();
    return 0;
}
