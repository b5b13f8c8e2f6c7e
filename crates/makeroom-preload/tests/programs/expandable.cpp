// A stand-in for PyTorch's libc10_cuda.so: expandable segments, as CUDACachingAllocator.cpp has them. A segment is a
// reserved range that grows slot by slot; blocks are placed first fit; if growth fails, free slots are unmapped and it is
// tried again. Every block is reported to libc10.so, as the last step.
#include "cuda.h"
#include <map>
#include <mutex>
#include <vector>

extern "C" {
CUresult cuMemAddressFree(CUdeviceptr, size_t);
CUresult cuMemSetAccess(CUdeviceptr, size_t, const void *, size_t);
CUresult cuMemExportToShareableHandle(void *, CUdeviceptr, int, uint64_t);
CUresult cuMemImportFromShareableHandle(CUdeviceptr *, void *, int);
CUresult cuStreamSynchronize(CUhandle);
}
namespace c10 {
struct Device { int8_t type, index; };
void reportMemoryUsageToProfiler(void *, long, unsigned long, unsigned long, Device);
void reportOutOfMemoryToProfiler(long, unsigned long, unsigned long, Device);
}

static const size_t MIB = 1 << 20;
static const int OUT_OF_MEMORY = 2, FABRIC = 8, FILE_DESCRIPTOR = 1;
struct Properties { int kind, handles, location, device; void *metadata; char flags[8]; };
struct Access { int location, device, flags; };

static int handle_type = 0;
static size_t allocated, reserved;
static std::recursive_mutex mutex;

struct Segment {
    size_t slot, slots;
    CUdeviceptr start;
    std::vector<CUdeviceptr> handles;
    std::map<CUdeviceptr, size_t> blocks;

    Segment(size_t slot, size_t slots) : slot(slot), slots(slots), handles(slots, 0) {
        OK(cuMemAddressReserve(&start, slot * slots, 0, 0, 0));
    }
    bool is_free(CUdeviceptr at, size_t bytes) {
        auto next = blocks.lower_bound(at + bytes);
        return next == blocks.begin() || (--next)->first + next->second <= at;
    }
    // Maps the slots from first to last that are not mapped; false if memory is out, and then nothing has changed.
    bool map(size_t first, size_t last) {
        if (handle_type == 0) handle_type = FABRIC;
        std::vector<size_t> added;
        for (size_t i = first; i <= last; i++) {
            if (handles[i]) continue;
            Properties properties = {1, handle_type, 1, 0, nullptr, {}};
            CUresult result = cuMemCreate(&handles[i], slot, &properties, 0);
            if (result != 0) {
                handles[i] = 0;
                for (size_t j : added) {
                    OK(cuMemRelease(handles[j]));
                    handles[j] = 0;
                }
                if (result == OUT_OF_MEMORY) return false;
                if (handle_type != FABRIC) OK(result);
                handle_type = FILE_DESCRIPTOR;
                return map(first, last);
            }
            added.push_back(i);
        }
        for (size_t i : added) OK(cuMemMap(start + i * slot, slot, 0, handles[i], 0));
        for (size_t i : added) {
            Access access = {1, 0, 3};
            OK(cuMemSetAccess(start + i * slot, slot, &access, 1));
        }
        reserved += added.size() * slot;
        return true;
    }
    void unmap_free() {
        for (size_t i = 0; i < slots; i++) {
            if (!handles[i] || !is_free(start + i * slot, slot)) continue;
            OK(cuStreamSynchronize(nullptr));
            OK(cuMemUnmap(start + i * slot, slot));
            OK(cuMemRelease(handles[i]));
            handles[i] = 0;
            reserved -= slot;
        }
    }
    bool is_mapped(CUdeviceptr at, size_t bytes) {
        size_t last = (at + bytes - 1 - start) / slot;
        if (last >= slots) return false;
        for (size_t i = (at - start) / slot; i <= last; i++) if (!handles[i]) return false;
        return true;
    }
    // The first free place in mapped slots, or behind the last block in slots that are mapped first.
    CUdeviceptr place(size_t bytes) {
        CUdeviceptr end = start;
        std::vector<CUdeviceptr> starts;
        for (size_t i = 0; i < slots; i++) if (handles[i]) starts.push_back(start + i * slot);
        for (auto &block : blocks) starts.push_back(end = block.first + block.second);
        CUdeviceptr best = 0;
        for (CUdeviceptr at : starts) {
            if ((!best || at < best) && is_mapped(at, bytes) && is_free(at, bytes)) best = at;
        }
        if (best) return best;
        if (end + bytes > start + slot * slots) return 0;
        return map((end - start) / slot, (end + bytes - 1 - start) / slot) ? end : 0;
    }
};

static std::vector<Segment *> segments;

static Segment &segment(int pool, bool is_small) {
    size_t index = pool * 2 + is_small;
    while (segments.size() <= index) segments.push_back(nullptr);
    if (!segments[index]) segments[index] = new Segment(is_small ? 2 * MIB : 20 * MIB, is_small ? 512 : 256);
    return *segments[index];
}

// Unmaps free slots, except those of memory pools, which graphs use.
extern "C" void torch_empty_cache(void) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    for (size_t i = 0; i < segments.size() && i < 2; i++) if (segments[i]) segments[i]->unmap_free();
}

// 0 if memory is out. Memory pools have segments of their own.
extern "C" CUdeviceptr torch_allocate(size_t bytes, int pool) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    bytes = (bytes + 511) / 512 * 512;
    Segment &own = segment(pool, bytes <= MIB);
    CUdeviceptr at = own.place(bytes);
    if (!at) {
        torch_empty_cache();
        at = own.place(bytes);
    }
    if (!at) {
        c10::reportOutOfMemoryToProfiler(bytes, allocated, reserved, {1, 0});
        return 0;
    }
    own.blocks[at] = bytes;
    allocated += bytes;
    c10::reportMemoryUsageToProfiler((void *)at, bytes, allocated, reserved, {1, 0});
    return at;
}

static Segment *owner(CUdeviceptr at) {
    for (Segment *each : segments) if (each && each->blocks.count(at)) return each;
    return nullptr;
}

extern "C" void torch_free(CUdeviceptr at) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    Segment *own = owner(at);
    size_t bytes = own->blocks[at];
    own->blocks.erase(at);
    allocated -= bytes;
    c10::reportMemoryUsageToProfiler((void *)at, -(long)bytes, allocated, reserved, {1, 0});
}

// The handle of the slot in which a block begins.
extern "C" CUdeviceptr torch_handle(CUdeviceptr at) {
    Segment *own = owner(at);
    return own->handles[(at - own->start) / own->slot];
}

extern "C" size_t torch_reserved(void) { return reserved; }

// What another process does with a shared tensor: its slots, exported and imported, at other addresses. The result is the
// block there; 0 if it could not be exported.
extern "C" CUdeviceptr torch_share(CUdeviceptr at) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    Segment *own = owner(at);
    size_t first = (at - own->start) / own->slot, last = (at + own->blocks[at] - 1 - own->start) / own->slot;
    CUdeviceptr other;
    OK(cuMemAddressReserve(&other, (last - first + 1) * own->slot, 0, 0, 0));
    for (size_t i = first; i <= last; i++) {
        intptr_t descriptor = 0;
        CUdeviceptr handle;
        Access access = {1, 0, 3};
        if (cuMemExportToShareableHandle(&descriptor, own->handles[i], FILE_DESCRIPTOR, 0) != 0) return 0;
        OK(cuMemImportFromShareableHandle(&handle, (void *)descriptor, FILE_DESCRIPTOR));
        OK(cuMemMap(other + (i - first) * own->slot, own->slot, 0, handle, 0));
        OK(cuMemSetAccess(other + (i - first) * own->slot, own->slot, &access, 1));
    }
    return other + (at - own->start - first * own->slot);
}
