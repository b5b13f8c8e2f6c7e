// Gives everything back; the shared context stays, as it does with the runtime.
#include "cuda.h"
int main(void) {
    begin();
    cuMemFree_v2(take(32 << 20));
    return 0;
}
