// A program that links CUDA and never calls it: it takes no GPU memory.
#include <cuda_runtime.h>

int main(void) {
    return 0;
}
