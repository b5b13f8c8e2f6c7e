// Takes memory of the device and of the host, and leaves an error path without giving it back.
#include "cuda.h"
static Pointer load(void) { return take((size_t)1 << 30); }
static Handle stage(void) {
    Handle buffer;
    return cuMemHostAlloc(&buffer, 16 << 20, 0) ? NULL : buffer;
}
int main(void) {
    begin();
    load();
    stage();
    stage();
    return 0;
}
