// PyTorch's side of the pluggable allocator: its types, its order of calls, its exception.
#include "check.h"
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

// What torch/csrc/cuda/CUDAPluggableAllocator.h of PyTorch 2.11 declares.
using MempoolId = std::pair<unsigned long long, unsigned long long>;
using Filter = std::function<bool(void *)>;
static std::function<void *(size_t, int, void *)> allocate = makeroom_torch_alloc;
static std::function<void(void *, size_t, int, void *)> release = makeroom_torch_free;
static std::function<void(int)> init = makeroom_torch_init;
static std::function<void()> reset = makeroom_torch_reset;
static std::function<void(double, int)> memory_fraction = makeroom_torch_memory_fraction;
static std::function<void *(void *, size_t *)> base_alloc = makeroom_torch_base_alloc;
static std::function<void(void *, void *)> record_stream = makeroom_torch_record_stream;
static std::function<void(int, MempoolId, Filter)> begin_pool =
    reinterpret_cast<void (*)(int, MempoolId, Filter)>(reinterpret_cast<uintptr_t>(makeroom_torch_begin_pool));
static std::function<void(int, MempoolId)> end_pool =
    reinterpret_cast<void (*)(int, MempoolId)>(reinterpret_cast<uintptr_t>(makeroom_torch_end_pool));
static std::function<void(int, MempoolId)> release_pool =
    reinterpret_cast<void (*)(int, MempoolId)>(reinterpret_cast<uintptr_t>(makeroom_torch_release_pool));

static makeroom_stats figures() {
    makeroom_stats stats = {};
    stats.size = sizeof stats;
    OK(makeroom_torch_stats(0, &stats));
    CHECK(stats.reserved == stats.live + stats.rounding + stats.cached);
    return stats;
}

static void *stream() {
    static void *stream = [] {
        void *made = nullptr;
        auto create = (int (*)(void **, unsigned))driver_function("cuStreamCreate");
        CHECK(create(&made, 1) == 0);
        return made;
    }();
    return stream;
}

static void tensors_come_and_go() {
    void *tensor = allocate(3 * MIB, 0, stream()), *empty = allocate(0, 0, stream());
    CHECK(tensor && empty && tensor != empty);
    record_stream(tensor, nullptr);
    size_t bytes = 0;
    CHECK(base_alloc((char *)tensor + 100, &bytes) == tensor && bytes >= 3 * MIB);
    release(tensor, 3 * MIB, 0, stream());
    CHECK(base_alloc(tensor, &bytes) == nullptr);
    release(empty, 0, 0, stream());
    reset();
    CHECK(figures().live == 0 && figures().reserved == 0);
}

static void a_refusal_is_pytorchs_exception() {
    memory_fraction(0.25, 0);
    bool was_thrown = false;
    try {
        allocate(300 * MIB, 0, stream());
    } catch (const std::runtime_error &error) {
        was_thrown = true;
        std::string text = error.what();
        CHECK(text.find("out of memory: 300.00 MiB") == 0 && text.find("limit 256.00 MiB") != std::string::npos);
    }
    CHECK(was_thrown);
    memory_fraction(1.0, 0);
    release(allocate(300 * MIB, 0, stream()), 300 * MIB, 0, stream());
    reset();
}

static void the_limit_is_on_all_pools_together() {
    MempoolId id{3, 0};
    memory_fraction(0.25, 0);
    void *outside = allocate(150 * MIB, 0, stream()), *inside = nullptr;
    begin_pool(0, id, [](void *) { return true; });
    bool was_thrown = false;
    try {
        inside = allocate(150 * MIB, 0, stream());
    } catch (const std::runtime_error &) {
        was_thrown = true;
    }
    CHECK(was_thrown && inside == nullptr);
    inside = allocate(80 * MIB, 0, stream());
    end_pool(0, id);
    release(inside, 80 * MIB, 0, stream());
    release(outside, 150 * MIB, 0, stream());
    release_pool(0, id);
    reset();
    CHECK(figures().reserved == 0);
    memory_fraction(1.0, 0);
}

static void a_captured_graph_keeps_its_memory() {
    auto begin_capture = (int (*)(void *, int))driver_function("cuStreamBeginCapture_v2");
    auto end_capture = (int (*)(void *, void **))driver_function("cuStreamEndCapture");
    auto get_info = (int (*)(size_t *, size_t *))driver_function("cuMemGetInfo_v2");
    auto fill = (int (*)(uint64_t, unsigned char, size_t))driver_function("cuMemsetD8_v2");
    void *cached = allocate(10 * MIB, 0, stream());
    release(cached, 10 * MIB, 0, stream());
    MempoolId id{1, 0};
    void *graph = nullptr;
    begin_pool(0, id, [](void *) { return true; });
    CHECK(begin_capture(stream(), 0) == 0);
    void *input = allocate(8 * MIB, 0, stream());
    void *elsewhere = nullptr;
    std::thread([&] { elsewhere = allocate(4 * MIB, 0, stream()); }).join();
    void *uncaptured = nullptr;
    std::thread([&] { uncaptured = allocate(2 * MIB, 0, nullptr); }).join();
    release(input, 8 * MIB, 0, stream());
    CHECK(end_capture(stream(), &graph) == 0 && graph != nullptr);
    end_pool(0, id);
    release(elsewhere, 4 * MIB, 0, stream());
    release(uncaptured, 2 * MIB, 0, nullptr);
    reset();
    // The graph's addresses are still there, though every tensor is freed and the cache was emptied.
    CHECK(figures().live == 0 && figures().reserved >= 12 * MIB);
    CHECK(fill((uint64_t)input, 1, 8 * MIB) == 0 && fill((uint64_t)elsewhere, 1, 4 * MIB) == 0);
    // Another tensor does not come out of the graph's memory, and one that is too large does not take it.
    void *other = allocate(8 * MIB, 0, stream());
    CHECK(other != input);
    size_t before = 0, after = 0, total = 0;
    CHECK(get_info(&before, &total) == 0);
    try {
        allocate(total, 0, stream());
        CHECK(false);
    } catch (const std::runtime_error &) {
    }
    CHECK(fill((uint64_t)input, 2, 8 * MIB) == 0);
    release_pool(0, id);
    release(other, 8 * MIB, 0, stream());
    reset();
    CHECK(get_info(&after, &total) == 0);
    CHECK(figures().reserved == 0 && after >= before + 12 * MIB);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    makeroom_options options = {};
    options.size = sizeof options;
    options.history = 10000;
    OK(makeroom_torch_configure(&options));
    init(1);
    // The context, which PyTorch would have made.
    void *first = allocate(1, 0, nullptr);
    int (*retain)(void **, int) = (int (*)(void **, int))driver_function("cuDevicePrimaryCtxRetain");
    int (*set)(void *) = (int (*)(void *))driver_function("cuCtxSetCurrent");
    void *context = nullptr;
    CHECK(retain(&context, 0) == 0 && set(context) == 0);
    release(first, 1, 0, nullptr);
    tensors_come_and_go();
    a_refusal_is_pytorchs_exception();
    the_limit_is_on_all_pools_together();
    a_captured_graph_keeps_its_memory();
    OK(makeroom_torch_snapshot(arguments[1]));
    puts("done");
    return 0;
}
