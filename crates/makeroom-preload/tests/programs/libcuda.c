// A driver of a few functions, for hazards that a whole one cannot produce on demand: a call that takes long, a call
// that calls another, a question that breaks a capture. One device of 1 GiB.
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int R;
typedef uint64_t P;
typedef void *H;
enum { TOTAL = 1 << 30, SLOTS = 1 << 16, CONTEXT = 0xc0de };
enum { OUT_OF_MEMORY = 2, INVALID = 1, NO_CONTEXT = 201, CAPTURE_BROKEN = 901, BAD_LAUNCH = 701 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { P address; size_t size; } blocks[SLOTS];
static size_t used;
static P next = 0x700000000000;
static int captures, is_broken;
static __thread H current;
static __thread int mode;

static R take(P *out, size_t bytes) {
    if (!out || !bytes) return INVALID;
    R result = OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    if (bytes <= TOTAL - used)
        for (size_t i = 0; i < SLOTS; i++)
            if (!blocks[i].address) {
                blocks[i].address = next, blocks[i].size = bytes;
                *out = next, used += bytes, next += (bytes + 511) & ~(size_t)511;
                result = 0;
                break;
            }
    pthread_mutex_unlock(&lock);
    return result;
}

static R give(P address) {
    R result = INVALID;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < SLOTS && address; i++)
        if (blocks[i].address == address) {
            used -= blocks[i].size, blocks[i].address = 0, result = 0;
            break;
        }
    pthread_mutex_unlock(&lock);
    return result;
}

R cuInit(unsigned flags) { return getenv("FAKE_NO_DEVICE") ? 100 : 0; }
R cuDriverGetVersion(int *version) { *version = 13000; return 0; }
R cuDeviceGetCount(int *count) { *count = 1; return 0; }
R cuDeviceGet(int *device, int index) { *device = index; return 0; }
R cuDeviceGetName(char *name, int length, int device) { snprintf(name, length, "Software GPU"); return 0; }
R cuDeviceGetUuid_v2(unsigned char *uuid, int device) { memset(uuid, 7, 16); return 0; }
R cuDeviceTotalMem_v2(size_t *total, int device) { *total = TOTAL; return 0; }
R cuCtxGetCurrent(H *context) { *context = current; return 0; }
R cuCtxSetCurrent(H context) { current = context; return 0; }
R cuCtxGetDevice(int *device) { *device = 0; return current ? 0 : NO_CONTEXT; }
R cuCtxCreate_v2(H *context, unsigned flags, int device) { current = *context = (H)CONTEXT; return 0; }
R cuCtxDestroy_v2(H context) { current = 0; return 0; }
R cuDevicePrimaryCtxRetain(H *context, int device) { *context = (H)CONTEXT; return 0; }
R cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
R cuMemAlloc_v2(P *out, size_t bytes) {
    if (bytes == 12345) sleep(5);
    return current ? take(out, bytes) : NO_CONTEXT;
}
R cuMemAllocManaged(P *out, size_t bytes, unsigned flags) { return cuMemAlloc_v2(out, bytes); }
R cuMemFree_v2(P address) { return give(address); }
R cuMemAllocAsync(P *out, size_t bytes, H stream) { return take(out, bytes); }
R cuMemAllocAsync_ptsz(P *out, size_t bytes, H stream) { return take(out, bytes); }
R cuMemFreeAsync(P address, H stream) { return give(address); }
R cuMemFreeAsync_ptsz(P address, H stream) { return give(address); }
R cuMemHostAlloc(H *out, size_t bytes, unsigned flags) { return out && (*out = malloc(bytes)) ? 0 : INVALID; }
R cuMemFreeHost(H pointer) { free(pointer); return 0; }
R cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    if (captures && mode != 2) { is_broken = 1; return CAPTURE_BROKEN; }
    if (free_bytes) *free_bytes = TOTAL - used;
    if (total) *total = TOTAL;
    return 0;
}
R cuMemCreate(P *handle, size_t bytes, const void *properties, uint64_t flags) {
    return properties ? take(handle, bytes) : INVALID;
}
R cuMemRelease(P handle) { return give(handle); }
R cuMemAddressReserve(P *out, size_t bytes, size_t alignment, P wanted, uint64_t flags) {
    *out = 0x600000000000; return 0;
}
R cuMemAddressFree(P address, size_t bytes) { return 0; }
R cuMemMap(P address, size_t bytes, size_t offset, P handle, uint64_t flags) { return 0; }
R cuMemUnmap(P address, size_t bytes) { return 0; }
R cuMemSetAccess(P address, size_t bytes, const void *access, size_t count) { return 0; }
R cuThreadExchangeStreamCaptureMode(int *other) { int was = mode; mode = *other; *other = was; return 0; }
R cuStreamCreate(H *stream, unsigned flags) { *stream = (H)0x57; return 0; }
R cuStreamBeginCapture_v2(H stream, int capture_mode) { captures++; is_broken = 0; return 0; }
R cuStreamEndCapture(H stream, H *graph) { captures--; return is_broken ? CAPTURE_BROKEN : 0; }
R cuModuleLoadData(H *module, const void *image) { *module = (H)0x30d; return 0; }
R cuModuleGetFunction(H *function, H module, const char *name) { *function = (H)1; return 0; }
R cuFuncGetName(const char **name, H function) { *name = "saxpy"; return 0; }
// Without a context the structure is not looked at.
R cuLaunchKernelEx(const void *config, H function, void **parameters, void **extra) {
    (void)config, (void)function, (void)parameters, (void)extra;
    return current ? BAD_LAUNCH : NO_CONTEXT;
}
R cuLaunchKernel(H function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                 unsigned shared, H stream, void **parameters, void **extra) {
    return shared > 48 << 10 ? BAD_LAUNCH : 0;
}

R cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *status);
R cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, out, version, flags, 0);
}
// The form that a version means, as the driver chooses it.
static const struct { const char *symbol; void *plain, *per_thread; } forms[] = {
    {"cuInit", cuInit}, {"cuMemAlloc", cuMemAlloc_v2}, {"cuMemFree", cuMemFree_v2},
    {"cuCtxCreate", cuCtxCreate_v2}, {"cuMemAllocAsync", cuMemAllocAsync, cuMemAllocAsync_ptsz},
    {"cuMemFreeAsync", cuMemFreeAsync, cuMemFreeAsync_ptsz}, {"cuDriverGetVersion", cuDriverGetVersion},
    {"cuGetProcAddress", cuGetProcAddress_v2}, {"cuMemGetInfo", cuMemGetInfo_v2},
};
R cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *status) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(symbol, forms[i].symbol)) {
            *out = flags & 2 && forms[i].per_thread ? forms[i].per_thread : forms[i].plain;
            if (status) *status = 0;
            return 0;
        }
    *out = 0;
    if (status) *status = 1;
    return 500;
}
