// A machine with a driver and no device: cuInit fails, and that is all.
#include "cuda.h"
int main(void) {
    printf("%d\n", cuInit(0));
    return 0;
}
