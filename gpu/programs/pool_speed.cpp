// Host time of an allocation and a free: PyTorch's native allocator and makeroom's pool, in turn, in one process, in the
// five patterns of bench/pool-speed. Prints one JSON object: nanoseconds per pair, the best of several rounds.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <makeroom.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

namespace {

constexpr size_t KIB = 1 << 10, MIB = 1 << 20, PAIRS = 20000;
constexpr int ROUNDS = 20;

struct Pattern {
    const char *name;
    size_t live, smallest, largest;
};
const Pattern PATTERNS[] = {
    {"same_size", 1, MIB, MIB},
    {"small", 1000, 512, MIB},
    {"large", 400, MIB, 256 * MIB},
    {"mixed", 1000, 512, 256 * MIB},
    {"many", 4000, 512, 64 * MIB},
};

uint64_t state;
uint64_t below(uint64_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % limit;
}

// Every order of magnitude as often as every other.
size_t size(const Pattern &pattern) {
    double share = below(1 << 20) / double(1 << 20);
    size_t bytes = pattern.smallest * std::pow(double(pattern.largest) / pattern.smallest, share);
    return std::min(std::max(bytes, std::max(pattern.smallest, KIB / 2)), pattern.largest);
}

using Allocate = std::function<void *(size_t)>;
using Free = std::function<void(void *)>;

double measure(const Pattern &pattern, const Allocate &allocate, const Free &free) {
    state = 1;
    std::vector<size_t> sizes, victims;
    for (size_t i = 0; i < PAIRS; i++) sizes.push_back(size(pattern));
    for (size_t i = 0; i < PAIRS; i++) victims.push_back(below(pattern.live));
    std::vector<void *> live;
    for (size_t i = 0; i < pattern.live; i++) live.push_back(allocate(sizes[i % PAIRS]));
    double best = INFINITY;
    for (int round = 0; round <= ROUNDS; round++) {
        auto start = std::chrono::steady_clock::now();
        for (size_t i = 0; i < PAIRS; i++) {
            free(live[victims[i]]);
            live[victims[i]] = allocate(sizes[i]);
        }
        std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
        if (round > 0) best = std::min(best, spent.count() / PAIRS);
    }
    for (void *block : live) free(block);
    return best;
}

void check(makeroom_status status) {
    if (status != MAKEROOM_OK) {
        std::fprintf(stderr, "%s\n", makeroom_last_error());
        std::exit(1);
    }
}

}  // namespace

int main() {
    namespace native = c10::cuda::CUDACachingAllocator;
    c10::cuda::set_device(0);
    native::init(c10::cuda::device_count());
    makeroom_pool pool;
    check(makeroom_pool_create(0, nullptr, &pool));
    const char *separator = "{";
    for (const Pattern &pattern : PATTERNS) {
        double torch = measure(
            pattern, [](size_t bytes) { return native::raw_alloc(bytes); },
            [](void *block) { native::raw_delete(block); });
        native::emptyCache();
        double own = measure(
            pattern,
            [pool](size_t bytes) {
                void *block;
                check(makeroom_alloc(pool, bytes, nullptr, &block));
                return block;
            },
            [pool](void *block) { check(makeroom_free(pool, block, nullptr)); });
        check(makeroom_pool_trim(pool, 0, nullptr));
        std::printf("%s\"%s\": {\"native_ns\": %.1f, \"pool_ns\": %.1f}", separator, pattern.name, torch, own);
        separator = ", ";
    }
    std::printf("}\n");
    check(makeroom_pool_destroy(pool));
    return 0;
}
