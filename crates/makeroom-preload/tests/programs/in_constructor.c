#include "cuda.h"
__attribute__((constructor)) static void use(void) {
    begin();
    round_trip(1 << 10);
}
