// Begins as every program does, and asks for no memory.
#include "cuda.h"
int main(void) {
    begin();
    cuMemFree_v2(0);
    return 0;
}
