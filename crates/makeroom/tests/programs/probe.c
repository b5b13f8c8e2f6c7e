// Finds out how much can be had: takes pieces until one is refused, then halves them, and gives all of it back.
#include "cuda.h"
static Pointer held[4096];
int main(void) {
    int count = 0;
    begin();
    for (size_t piece = (size_t)16 << 20; piece >= 2 << 20; piece /= 2)
        while (count < 4096 && !cuMemAlloc_v2(&held[count], piece)) count++;
    printf("%d\n", count > 400);
    while (count > 0) cuMemFree_v2(held[--count]);
    return 0;
}
