// A server that forgets one buffer for every request that is invalid.
//
//     ./leak           runs out of memory after a while
//     ./leak fixed     frees the buffer on every path
#include <cuda_runtime.h>
#include <stdexcept>
#include <stdio.h>
#include <string.h>

static const size_t MIB = 1 << 20;

// Frees its memory when it goes out of scope, also when an exception passes.
struct Buffer {
    void *pointer = nullptr;
    explicit Buffer(size_t bytes) {
        if (cudaMalloc(&pointer, bytes) != cudaSuccess) throw std::bad_alloc();
    }
    ~Buffer() { cudaFree(pointer); }
    Buffer(const Buffer &) = delete;
};

static void check(int request) {
    if (request % 3 == 0) throw std::invalid_argument("the request has no body");
}

static void handle(int request) {
    void *input;
    if (cudaMalloc(&input, 8 * MIB) != cudaSuccess) throw std::bad_alloc();
    check(request);
    cudaFree(input);
}

static void handle_fixed(int request) {
    Buffer input(8 * MIB);
    check(request);
}

int main(int count, char **arguments) {
    bool is_fixed = count > 1 && strcmp(arguments[1], "fixed") == 0;
    int answered = 0;
    try {
        for (int request = 1; request <= 1200; ++request) {
            try {
                is_fixed ? handle_fixed(request) : handle(request);
                ++answered;
            } catch (const std::invalid_argument &) {
            }
        }
    } catch (const std::bad_alloc &) {
        printf("out of memory after %d answers\n", answered);
        return 1;
    }
    printf("%d answers\n", answered);
    return 0;
}
