// Holds five eighths of the device until its standard input ends.
#include "cuda.h"
int main(void) {
    begin();
    take((size_t)5 << 30);
    printf("holding\n");
    fflush(stdout);
    return getchar() == EOF ? 0 : 1;
}
