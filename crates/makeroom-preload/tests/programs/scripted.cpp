// A stand-in for PyTorch's libc10_cuda.so that does what a script says, so that its addresses are those of the exact model of
// PyTorch's allocator. Every block has known contents, written on one stream and checked on another.
//
//     r SLOT COUNT          reserve a segment        m SEGMENT FIRST COUNT           map slots
//     u SEGMENT FIRST COUNT unmap slots              a ID SEGMENT OFFSET BYTES WORK  a block, and later work on it
//     f ID                  free a block
#include "cuda.h"
#include <cstring>
#include <unordered_map>
#include <vector>

extern "C" {
CUresult cuMemSetAccess(CUdeviceptr, size_t, const void *, size_t);
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUhandle);
CUresult cuMemcpyDtoHAsync_v2(void *, CUdeviceptr, size_t, CUhandle);
CUresult cuStreamSynchronize(CUhandle);
CUresult makeroom_simgpu_enqueue_work(CUhandle, uint64_t);
}
namespace c10 {
struct Device { int8_t type, index; };
void reportMemoryUsageToProfiler(void *, long, unsigned long, unsigned long, Device);
}

static const size_t PAGE = 2 << 20, WRITTEN = 16, STREAMS = 4;
struct Segment { size_t slot; CUdeviceptr start; std::vector<CUdeviceptr> handles; };
struct Block { CUdeviceptr at; size_t bytes; unsigned char tag; size_t work; };

static std::vector<Segment> segments;
static std::unordered_map<size_t, Block> blocks;
static CUhandle streams[STREAMS];
static size_t allocated, reserved, operations;

// The start of each page of a block, and its end.
template <typename Work> static void each_part(const Block &block, Work work) {
    CUdeviceptr last = block.at + block.bytes - WRITTEN;
    for (CUdeviceptr at = block.at; at < last; at = (at / PAGE + 1) * PAGE) work(at);
    work(last);
}

static void map(Segment &segment, size_t first, size_t count) {
    struct { int kind, handles, location, device; void *metadata; char flags[8]; } properties = {1, 1, 1, 0, nullptr, {}};
    struct { int location, device, flags; } access = {1, 0, 3};
    for (size_t i = first; i < first + count; i++) OK(cuMemCreate(&segment.handles[i], segment.slot, &properties, 0));
    for (size_t i = first; i < first + count; i++) OK(cuMemMap(segment.start + i * segment.slot, segment.slot, 0, segment.handles[i], 0));
    OK(cuMemSetAccess(segment.start + first * segment.slot, count * segment.slot, &access, 1));
    reserved += count * segment.slot;
}

static void unmap(Segment &segment, size_t first, size_t count) {
    for (size_t i = first; i < first + count; i++) {
        OK(cuMemUnmap(segment.start + i * segment.slot, segment.slot));
        OK(cuMemRelease(segment.handles[i]));
    }
    reserved -= count * segment.slot;
}

static void allocate(size_t id, CUdeviceptr at, size_t bytes, size_t work) {
    Block block = {at, bytes, (unsigned char)(1 + operations % 251), work};
    allocated += bytes;
    c10::reportMemoryUsageToProfiler((void *)at, bytes, allocated, reserved, {1, 0});
    each_part(block, [&](CUdeviceptr part) { OK(cuMemsetD8Async(part, block.tag, WRITTEN, streams[id % STREAMS])); });
    // Other streams see the contents only after these.
    OK(cuStreamSynchronize(streams[id % STREAMS]));
    blocks[id] = block;
}

static bool release(size_t id) {
    Block block = blocks.at(id);
    CUhandle other = streams[(id + 1 + operations) % STREAMS];
    bool is_right = true;
    unsigned char found[WRITTEN], wanted[WRITTEN];
    memset(wanted, block.tag, WRITTEN);
    each_part(block, [&](CUdeviceptr part) {
        OK(cuMemcpyDtoHAsync_v2(found, part, WRITTEN, other));
        OK(cuStreamSynchronize(other));
        is_right &= memcmp(found, wanted, WRITTEN) == 0;
    });
    // The GPU still uses the block when it is freed.
    if (block.work) OK(makeroom_simgpu_enqueue_work(other, block.work));
    blocks.erase(id);
    allocated -= block.bytes;
    c10::reportMemoryUsageToProfiler((void *)block.at, -(long)block.bytes, allocated, reserved, {1, 0});
    return is_right;
}

// Runs a script; returns how many operations it had, or 0 if the contents of a block changed.
extern "C" size_t torch_run(const char *path) {
    FILE *script = fopen(path, "r");
    char what;
    size_t a, b, c, d, e;
    for (size_t i = 0; i < STREAMS; i++) OK(cuStreamCreate(&streams[i], 1));
    while (script && fscanf(script, " %c", &what) == 1) {
        operations++;
        bool is_right = true;
        if (what == 'r' && fscanf(script, "%zu %zu", &a, &b) == 2) {
            segments.push_back({a, 0, std::vector<CUdeviceptr>(b)});
            OK(cuMemAddressReserve(&segments.back().start, a * b, 0, 0, 0));
        } else if (what == 'm' && fscanf(script, "%zu %zu %zu", &a, &b, &c) == 3) map(segments.at(a), b, c);
        else if (what == 'u' && fscanf(script, "%zu %zu %zu", &a, &b, &c) == 3) unmap(segments.at(a), b, c);
        else if (what == 'a' && fscanf(script, "%zu %zu %zu %zu %zu", &a, &b, &c, &d, &e) == 5) {
            allocate(a, segments.at(b).start + c, d, e);
        } else if (what == 'f' && fscanf(script, "%zu", &a) == 1) is_right = release(a);
        else return 0;
        if (!is_right) return 0;
    }
    return operations;
}
