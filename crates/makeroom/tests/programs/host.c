// Takes host memory and never gives it back.
#include "cuda.h"
#include <unistd.h>
int main(void) {
    begin();
    cuMemFree_v2(take(1 << 20));
    usleep(200000);
    for (int i = 0; i < 9; i++) memset(malloc(64 << 20), 1, 64 << 20);
    return 0;
}
