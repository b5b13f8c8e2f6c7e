/* What a CUDA driver answers, one line per question: `question = answer`.
 *
 * The same program runs on a real card and on the simulated one; the answers recorded from the real one stand in
 * conformance.h200.txt, and the test compares them. Answers that depend on the size of the card are not printed.
 * Links nothing: the driver is opened as programs do, with dlopen and dlsym. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <pthread.h>

static void *driver;
static void *symbol(const char *name) {
    void *found = dlsym(driver, name);
    if (!found) { printf("missing %s\n", name); fflush(stdout); exit(3); }
    return found;
}
#define CALL(name, ...) (((int (*)())symbol(#name))(__VA_ARGS__))
#define SAY(question, value) (printf("%s = %ld\n", question, (long)(value)), fflush(stdout))
#define ASK(question, name, ...) SAY(question, CALL(name, __VA_ARGS__))

typedef unsigned long word;
static const word KIB = 1024, MIB = 1024 * 1024;
struct location { int type, id; };
struct allocation_properties {
    int type, handle_types; struct location location; void *metadata;
    unsigned char compression, direct; unsigned short usage; unsigned char reserved[4];
};
struct access { struct location location; int flags; };
struct pool_properties {
    int allocation_type, handle_types; struct location location; void *security; word largest;
    unsigned short usage; unsigned char reserved[54];
};
struct node_parameters { struct pool_properties pool; struct access *access; word access_count, bytes, address; };

static word free_memory(void) { word free_bytes = 0, total = 0; CALL(cuMemGetInfo_v2, &free_bytes, &total); return free_bytes; }

static void before_start(void) {
    int number; word pointer; void *function; const char *text; word bytes;
    ASK("before cuInit: cuDriverGetVersion", cuDriverGetVersion, &number);
    ASK("before cuInit: cuDeviceGetCount", cuDeviceGetCount, &number);
    ASK("before cuInit: cuMemAlloc_v2", cuMemAlloc_v2, &pointer, 512UL);
    ASK("before cuInit: cuGetErrorName", cuGetErrorName, 2, &text);
    ASK("before cuInit: cuMemGetInfo_v2", cuMemGetInfo_v2, &bytes, &bytes);
    ASK("before cuInit: cuCtxGetCurrent", cuCtxGetCurrent, &function);
    ASK("before cuInit: cuGetProcAddress", cuGetProcAddress, "cuMemAlloc", &function, 12000, 0UL);
    ASK("cuInit with flags", cuInit, 1);
}

static void contexts(void) {
    word pointer; void *first, *second, *current, *primary; int device; unsigned flags; int active;
    ASK("no context: cuMemAlloc_v2", cuMemAlloc_v2, &pointer, 512UL);
    ASK("no context: cuMemAlloc_v2 NULL", cuMemAlloc_v2, NULL, 512UL);
    ASK("no context: cuMemFree_v2", cuMemFree_v2, 0x1000UL);
    ASK("no context: cuCtxGetDevice", cuCtxGetDevice, &device);
    ASK("no context: cuCtxSynchronize", cuCtxSynchronize);
    ASK("no context: cuCtxPopCurrent_v2", cuCtxPopCurrent_v2, &current);
    ASK("no context: cuCtxGetCurrent", cuCtxGetCurrent, &current);
    SAY("no context: current is NULL", current == NULL);
    ASK("no context: cuMemGetInfo_v2", cuMemGetInfo_v2, &pointer, &pointer);
    ASK("no context: cuMemHostAlloc", cuMemHostAlloc, &current, 64UL, 0);
    ASK("no context: cuStreamSynchronize", cuStreamSynchronize, NULL);
    ASK("no context: cuDeviceGet of a device that is not there", cuDeviceGet, &device, 99);
    ASK("no context: cuDeviceGetName of a device that is not there", cuDeviceGetName, &pointer, 8, 99);
    ASK("no context: cuCtxCreate_v2 of a device that is not there", cuCtxCreate_v2, &first, 0, 99);
    ASK("cuDevicePrimaryCtxRelease_v2 without retain", cuDevicePrimaryCtxRelease_v2, 0);
    ASK("cuDevicePrimaryCtxGetState", cuDevicePrimaryCtxGetState, 0, &flags, &active);
    SAY("primary is active", active);
    ASK("cuCtxCreate_v2", cuCtxCreate_v2, &first, 0, 0);
    ASK("cuCtxCreate_v2 again", cuCtxCreate_v2, &second, 0, 0);
    CALL(cuCtxGetCurrent, &current);
    SAY("a created context is current", current == second);
    ASK("cuCtxDestroy_v2", cuCtxDestroy_v2, second);
    CALL(cuCtxGetCurrent, &current);
    SAY("after destroy the one below is current", current == first);
    ASK("cuCtxDestroy_v2 NULL", cuCtxDestroy_v2, NULL);
    ASK("cuCtxSetCurrent", cuCtxSetCurrent, first);
    ASK("cuCtxDestroy_v2 of the last", cuCtxDestroy_v2, first);
    CALL(cuCtxCreate_v2, &first, 0, 0); CALL(cuCtxPushCurrent_v2, first); CALL(cuCtxDestroy_v2, first);
    CALL(cuCtxGetCurrent, &current); SAY("a destroyed context is current", current == first);
    ASK("destroyed context: cuMemAlloc_v2", cuMemAlloc_v2, &pointer, 512UL);
    ASK("destroyed context: cuCtxGetDevice", cuCtxGetDevice, &device);
    ASK("destroyed context: cuCtxSynchronize", cuCtxSynchronize);
    ASK("destroyed context: cuCtxPushCurrent_v2", cuCtxPushCurrent_v2, first);
    ASK("destroyed context: cuCtxSetCurrent", cuCtxSetCurrent, first);
    ASK("destroyed context: cuCtxSetCurrent NULL", cuCtxSetCurrent, NULL);
    ASK("cuCtxPushCurrent_v2 NULL", cuCtxPushCurrent_v2, NULL);
    { char name[4]; ASK("cuDeviceGetName of 4 bytes", cuDeviceGetName, name, 4, 0); SAY("ends in zero", name[3] == 0); }
    ASK("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain, &primary, 0);
    ASK("cuCtxDestroy_v2 of the primary", cuCtxDestroy_v2, primary);
    ASK("cuDevicePrimaryCtxGetState while held", cuDevicePrimaryCtxGetState, 0, &flags, &active);
    SAY("primary is active while held", active);
    ASK("cuDevicePrimaryCtxReset_v2", cuDevicePrimaryCtxReset_v2, 0);
    CALL(cuDevicePrimaryCtxGetState, 0, &flags, &active);
    SAY("primary is active after reset", active);
    ASK("cuDevicePrimaryCtxRelease_v2 after reset", cuDevicePrimaryCtxRelease_v2, 0);
    CALL(cuDevicePrimaryCtxGetState, 0, &flags, &active);
    SAY("primary is active after reset and release", active);
    while (CALL(cuDevicePrimaryCtxRelease_v2, 0) == 0) {}
    ASK("cuDevicePrimaryCtxRetain once more", cuDevicePrimaryCtxRetain, &primary, 0);
    ASK("cuCtxSetCurrent primary", cuCtxSetCurrent, primary);
}

static void limits(void) {
    word value = 0, before; int kind;
    for (kind = 0; kind < 7; kind++) {
        char text[64]; int answer = CALL(cuCtxGetLimit, &value, kind);
        snprintf(text, sizeof text, "cuCtxGetLimit %d", kind); SAY(text, answer);
    }
    CALL(cuCtxGetLimit, &value, 0); SAY("stack limit", value);
    CALL(cuCtxGetLimit, &value, 2); SAY("heap limit", value);
    CALL(cuCtxGetLimit, &value, 1); fprintf(stderr, "printf fifo %lu\n", value);
    before = free_memory();
    ASK("cuCtxSetLimit heap 256 MiB", cuCtxSetLimit, 2, 256 * MIB);
    fprintf(stderr, "heap 256 MiB cost %ld KiB\n", (long)(before - free_memory()) / 1024); before = free_memory();
    ASK("cuCtxSetLimit stack 4 KiB", cuCtxSetLimit, 0, 4 * KIB);
    fprintf(stderr, "stack 4 KiB cost %ld KiB\n", (long)(before - free_memory()) / 1024); before = free_memory();
    ASK("cuCtxSetLimit printf 64 MiB", cuCtxSetLimit, 1, 64 * MIB);
    fprintf(stderr, "printf 64 MiB cost %ld KiB\n", (long)(before - free_memory()) / 1024);
    ASK("cuCtxSetLimit of what is not there", cuCtxSetLimit, 99, 64 * MIB);
    ASK("cuCtxSetLimit heap larger than the card", cuCtxSetLimit, 2, 4UL << 40);
    CALL(cuCtxGetLimit, &value, 2); fprintf(stderr, "heap limit after refusal %lu\n", value);
    CALL(cuCtxSetLimit, 2, 8 * MIB); CALL(cuCtxSetLimit, 0, 1 * KIB); CALL(cuCtxSetLimit, 1, 1 * MIB);
}

static void linear(void) {
    word a = 0, b = 0, c = 0, base = 0, size = 0, before, pitch; static char text[4 << 20]; int i;
    ASK("cuMemAlloc_v2 of 0 bytes", cuMemAlloc_v2, &a, 0UL);
    ASK("cuMemAlloc_v2 NULL", cuMemAlloc_v2, NULL, 512UL);
    ASK("cuMemAlloc_v2 larger than the card", cuMemAlloc_v2, &a, 4UL << 40);
    ASK("cuMemAlloc_v2 of all address bits", cuMemAlloc_v2, &a, ~0UL);
    ASK("cuMemFree_v2 of NULL", cuMemFree_v2, 0UL);
    ASK("cuMemGetInfo_v2 without results", cuMemGetInfo_v2, NULL, NULL);
    CALL(cuMemAlloc_v2, &c, 512UL);
    before = free_memory();
    ASK("cuMemAlloc_v2 100 bytes", cuMemAlloc_v2, &a, 100UL);
    ASK("cuMemAlloc_v2 100 bytes again", cuMemAlloc_v2, &b, 100UL);
    SAY("small blocks share a page", before - free_memory());
    SAY("small blocks lie apart by", b - a);
    SAY("small blocks are aligned to 512", a % 512);
    ASK("cuMemGetAddressRange_v2", cuMemGetAddressRange_v2, &base, &size, a + 10);
    SAY("range base", base - a); SAY("range size", size);
    ASK("cuMemGetAddressRange_v2 without results", cuMemGetAddressRange_v2, NULL, NULL, a);
    ASK("cuMemGetAddressRange_v2 past the end", cuMemGetAddressRange_v2, &base, &size, a + 100);
    ASK("cuMemGetAddressRange_v2 elsewhere", cuMemGetAddressRange_v2, &base, &size, 0x1000UL);
    ASK("cuMemFree_v2 inside a block", cuMemFree_v2, a + 4);
    ASK("cuMemcpyHtoD_v2", cuMemcpyHtoD_v2, a, text, 100UL);
    ASK("cuMemcpyHtoD_v2 past the end", cuMemcpyHtoD_v2, a, text, 101UL);
    ASK("cuMemcpyHtoD_v2 of 4 MiB to 100 bytes", cuMemcpyHtoD_v2, a, text, 4 * MIB);
    ASK("cuMemcpyDtoH_v2 past the end", cuMemcpyDtoH_v2, text, a, 101UL);
    ASK("cuMemcpyHtoD_v2 of 0 bytes", cuMemcpyHtoD_v2, a, text, 0UL);
    ASK("cuMemcpyHtoD_v2 of 0 bytes to NULL", cuMemcpyHtoD_v2, 0UL, text, 0UL);
    ASK("cuMemcpyHtoD_v2 to NULL", cuMemcpyHtoD_v2, 0UL, text, 1UL);
    ASK("cuMemcpyDtoD_v2", cuMemcpyDtoD_v2, a, b, 100UL);
    ASK("cuMemcpyDtoD_v2 past the end", cuMemcpyDtoD_v2, a, b, 101UL);
    ASK("cuMemcpy", cuMemcpy, a, b, 100UL);
    ASK("cuMemcpy from the host", cuMemcpy, a, text, 100UL);
    ASK("cuMemsetD8_v2", cuMemsetD8_v2, a, 7, 100UL);
    ASK("cuMemsetD8_v2 past the end", cuMemsetD8_v2, a, 7, 101UL);
    ASK("cuMemsetD8_v2 of 0 bytes", cuMemsetD8_v2, a, 7, 0UL);
    ASK("cuMemsetD32_v2", cuMemsetD32_v2, a, 7, 25UL);
    ASK("cuMemsetD32_v2 not aligned", cuMemsetD32_v2, a + 2, 7, 4UL);
    ASK("cuMemsetD16_v2 not aligned", cuMemsetD16_v2, a + 1, 7, 4UL);
    ASK("cuMemsetD8_v2 of host memory", cuMemsetD8_v2, text, 7, 4UL);
    ASK("cuMemsetD2D8_v2 beyond the pitch", cuMemsetD2D8_v2, a, 10UL, 7, 11UL, 2UL);
    ASK("cuMemFree_v2", cuMemFree_v2, a);
    ASK("cuMemFree_v2 twice", cuMemFree_v2, a);
    ASK("cuMemcpyHtoD_v2 to freed memory", cuMemcpyHtoD_v2, a, text, 100UL);
    ASK("cuMemFree_v2 of a host address", cuMemFree_v2, text);
    CALL(cuMemFree_v2, b);
    static const word sizes[] = {1 * MIB, 1 * MIB + 1, 2 * MIB - 512, 2 * MIB - 511, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 3 * MIB, 5 * MIB, 33 * MIB};
    for (i = 0; i < 10; i++) {
        char question[64]; before = free_memory(); CALL(cuMemAlloc_v2, &a, sizes[i]);
        snprintf(question, sizeof question, "%lu bytes take", sizes[i]); SAY(question, before - free_memory());
        snprintf(question, sizeof question, "%lu bytes are aligned", sizes[i]); SAY(question, a % (2 * MIB) == 0);
        CALL(cuMemFree_v2, a);
        snprintf(question, sizeof question, "%lu bytes come back", sizes[i]); SAY(question, before - free_memory());
    }
    ASK("cuMemAllocPitch_v2", cuMemAllocPitch_v2, &a, &pitch, 100UL, 10UL, 4); SAY("pitch", pitch);
    CALL(cuMemGetAddressRange_v2, &base, &size, a); SAY("pitched size", size); CALL(cuMemFree_v2, a);
    ASK("cuMemAllocPitch_v2 with an odd element", cuMemAllocPitch_v2, &a, &pitch, 100UL, 10UL, 3);
    ASK("cuMemAllocPitch_v2 of 0 rows", cuMemAllocPitch_v2, &a, &pitch, 100UL, 0UL, 4);
    ASK("cuMemAllocManaged", cuMemAllocManaged, &a, 100UL, 1); memset((void *)a, 1, 100);
    ASK("cuMemAllocManaged with wrong flags", cuMemAllocManaged, &b, 100UL, 9);
    ASK("cuMemcpyDtoH_v2 of managed memory", cuMemcpyDtoH_v2, text, a, 100UL); SAY("managed byte", text[99]);
    ASK("cuMemFree_v2 of managed memory", cuMemFree_v2, a);
    CALL(cuMemFree_v2, c);
}

static void first_forms(void) {
    unsigned small = 0, free_bytes = 0, total = 0; void *object = NULL; char text[64] = "";
    ASK("cuMemAlloc (first form)", cuMemAlloc, &small, 512);
    ASK("cuMemGetInfo (first form)", cuMemGetInfo, &free_bytes, &total);
    ASK("cuMemFree (first form)", cuMemFree, 0x1000);
    ASK("cuMemAllocPitch (first form)", cuMemAllocPitch, &small, &total, 100, 10, 4);
    ASK("cuMemGetAddressRange (first form)", cuMemGetAddressRange, &small, &total, 0x1000);
    ASK("cuDeviceTotalMem (first form)", cuDeviceTotalMem, &total, 0);
    ASK("cuMemAllocHost (first form)", cuMemAllocHost, &object, 64);
    ASK("cuMemcpyHtoD (first form)", cuMemcpyHtoD, 0x1000, text, 8);
    ASK("cuMemsetD8 (first form)", cuMemsetD8, 0x1000, 1, 8);
    ASK("cuMemHostRegister (first form)", cuMemHostRegister, text, 8UL, 0); CALL(cuMemHostUnregister, text);
    CALL(cuStreamCreate, &object, 0); ASK("cuStreamDestroy (first form)", cuStreamDestroy, object);
    CALL(cuEventCreate, &object, 0); ASK("cuEventDestroy (first form)", cuEventDestroy, object);
    ASK("cuCtxCreate (first form)", cuCtxCreate, &object, 0, 0);
    ASK("cuCtxPopCurrent (first form)", cuCtxPopCurrent, &object);
    ASK("cuCtxPushCurrent (first form)", cuCtxPushCurrent, object);
    ASK("cuCtxDestroy (first form)", cuCtxDestroy, object);
    ASK("cuDevicePrimaryCtxRelease (first form)", cuDevicePrimaryCtxRelease, 0);
}

static void host(void) {
    void *a = NULL; word device = 0; unsigned flags = 0; char *page = aligned_alloc(4096, 16384);
    ASK("cuMemHostAlloc", cuMemHostAlloc, &a, 100UL, 0); memset(a, 3, 100);
    ASK("cuMemHostAlloc of 0 bytes", cuMemHostAlloc, &device, 0UL, 0);
    SAY("of no bytes no address", device == 0);
    ASK("cuMemHostAlloc with wrong flags", cuMemHostAlloc, &device, 100UL, 64);
    ASK("cuMemHostGetDevicePointer_v2", cuMemHostGetDevicePointer_v2, &device, a, 0);
    SAY("device pointer is the host's", device == (word)a);
    ASK("cuMemHostGetFlags", cuMemHostGetFlags, &flags, a); SAY("host flags", flags);
    ASK("cuMemFree_v2 of pinned memory", cuMemFree_v2, a);
    ASK("cuMemFreeHost", cuMemFreeHost, a);
    ASK("cuMemFreeHost twice", cuMemFreeHost, a);
    ASK("cuMemFreeHost NULL", cuMemFreeHost, NULL);
    ASK("cuMemAllocHost_v2", cuMemAllocHost_v2, &a, 100UL); CALL(cuMemFreeHost, a);
    ASK("cuMemHostRegister_v2", cuMemHostRegister_v2, page, 8192UL, 0);
    ASK("cuMemHostRegister_v2 twice", cuMemHostRegister_v2, page, 8192UL, 0);
    ASK("cuMemHostRegister_v2 overlapping", cuMemHostRegister_v2, page + 4096, 8192UL, 0);
    ASK("cuMemHostRegister_v2 of 0 bytes", cuMemHostRegister_v2, page + 12288, 0UL, 0);
    ASK("cuMemHostGetDevicePointer_v2 of registered memory", cuMemHostGetDevicePointer_v2, &device, page + 10, 0);
    ASK("cuMemFreeHost of registered memory", cuMemFreeHost, page);
    ASK("cuMemHostUnregister inside", cuMemHostUnregister, page + 4096);
    ASK("cuMemHostUnregister", cuMemHostUnregister, page);
    ASK("cuMemHostUnregister twice", cuMemHostUnregister, page);
    ASK("cuMemHostGetDevicePointer_v2 of other memory", cuMemHostGetDevicePointer_v2, &device, page, 0);
}

static void pointers(void) {
    word a = 0, value = 0; void *pinned; int attribute, local; char text[96];
    CALL(cuMemAlloc_v2, &a, 100UL); CALL(cuMemHostAlloc, &pinned, 64UL, 0);
    for (attribute = 1; attribute <= 17; attribute++) {
        if (attribute == 5 || attribute == 10) continue;
        unsigned char room[64] = {0};
        snprintf(text, sizeof text, "device pointer attribute %d", attribute);
        ASK(text, cuPointerGetAttribute, room, attribute, a + 8);
        if (attribute == 2 || attribute == 8 || attribute == 9 || attribute == 13 || attribute == 14 || attribute == 16)
            { snprintf(text, sizeof text, "device pointer attribute %d value", attribute); SAY(text, *(int *)room); }
        if (attribute == 12) SAY("device pointer range size", *(word *)room);
        if (attribute == 3) SAY("device pointer value", *(word *)room - a);
        memset(room, 0, sizeof room);
        snprintf(text, sizeof text, "pinned pointer attribute %d", attribute);
        ASK(text, cuPointerGetAttribute, room, attribute, pinned);
        snprintf(text, sizeof text, "other pointer attribute %d", attribute);
        ASK(text, cuPointerGetAttribute, room, attribute, &local);
    }
    int attributes[2] = {2, 9}; int type = 7, device = 7; void *out[2] = {&type, &device};
    ASK("cuPointerGetAttributes of other memory", cuPointerGetAttributes, 2, attributes, out, &local);
    SAY("type", type); SAY("device", device);
    ASK("cuPointerGetAttributes", cuPointerGetAttributes, 2, attributes, out, a); SAY("type", type); SAY("device", device);
    (void)value; CALL(cuMemFree_v2, a); CALL(cuMemFreeHost, pinned);
}

static void streams(void) {
    void *stream, *other, *event, *timed; float milliseconds; int low, high;
    ASK("cuStreamCreate", cuStreamCreate, &stream, 1);
    ASK("cuStreamCreate with wrong flags", cuStreamCreate, &other, 64);
    ASK("cuStreamCreateWithPriority", cuStreamCreateWithPriority, &other, 1, -1);
    ASK("cuCtxGetStreamPriorityRange", cuCtxGetStreamPriorityRange, &low, &high); SAY("lowest", low); SAY("highest", high);
    ASK("cuStreamGetPriority", cuStreamGetPriority, other, &low); SAY("priority", low);
    ASK("cuEventCreate", cuEventCreate, &event, 2); ASK("cuEventCreate timed", cuEventCreate, &timed, 0);
    ASK("cuEventCreate with wrong flags", cuEventCreate, &milliseconds, 64);
    ASK("cuEventQuery before record", cuEventQuery, timed);
    ASK("cuEventSynchronize before record", cuEventSynchronize, timed);
    ASK("cuEventElapsedTime before record", cuEventElapsedTime, &milliseconds, timed, timed);
    ASK("cuEventRecord", cuEventRecord, timed, stream); ASK("cuEventRecord untimed", cuEventRecord, event, stream);
    ASK("cuStreamWaitEvent", cuStreamWaitEvent, other, timed, 0);
    ASK("cuStreamSynchronize", cuStreamSynchronize, stream); ASK("cuStreamQuery", cuStreamQuery, stream);
    ASK("cuEventElapsedTime", cuEventElapsedTime, &milliseconds, timed, timed);
    ASK("cuEventElapsedTime untimed", cuEventElapsedTime, &milliseconds, timed, event);
    ASK("cuEventRecord NULL", cuEventRecord, NULL, stream); ASK("cuEventQuery NULL", cuEventQuery, NULL);
    ASK("cuStreamDestroy_v2 NULL", cuStreamDestroy_v2, NULL);
    ASK("cuStreamDestroy_v2 legacy", cuStreamDestroy_v2, (void *)1);
    ASK("cuStreamSynchronize per thread", cuStreamSynchronize, (void *)2);
    ASK("cuStreamSynchronize default", cuStreamSynchronize, NULL);
    ASK("cuEventDestroy_v2", cuEventDestroy_v2, event); CALL(cuEventDestroy_v2, timed);
    ASK("cuStreamDestroy_v2", cuStreamDestroy_v2, stream); CALL(cuStreamDestroy_v2, other);
}

static void pools(void) {
    word a = 0, b = 0, value = 0, before; void *pool, *own, *stream; int i; char text[64];
    struct pool_properties properties = {.allocation_type = 1, .location = {1, 0}};
    CALL(cuStreamCreate, &stream, 1);
    ASK("cuDeviceGetDefaultMemPool", cuDeviceGetDefaultMemPool, &pool, 0);
    ASK("cuDeviceGetMemPool", cuDeviceGetMemPool, &own, 0); SAY("same pool", pool == own);
    for (i = 1; i <= 14; i++) {
        int answer; value = 0; answer = CALL(cuMemPoolGetAttribute, pool, i, &value);
        snprintf(text, sizeof text, "pool attribute %d", i); SAY(text, answer);
        if (i < 9) { snprintf(text, sizeof text, "pool attribute %d value", i); SAY(text, value); }
    }
    ASK("cuMemAllocAsync of 0 bytes", cuMemAllocAsync, &a, 0UL, stream);
    SAY("of no bytes no address", a == 0);
    ASK("cuMemAllocAsync larger than the card", cuMemAllocAsync, &a, 4UL << 40, stream);
    before = free_memory();
    ASK("cuMemAllocAsync 100 bytes", cuMemAllocAsync, &a, 100UL, stream);
    SAY("first allocation takes", before - free_memory());
    ASK("cuMemAllocAsync 1000 bytes", cuMemAllocAsync, &b, 1000UL, stream);
    SAY("distance", b - a); SAY("alignment", a % 512);
    CALL(cuMemPoolGetAttribute, pool, 5, &value); SAY("reserved", value);
    CALL(cuMemPoolGetAttribute, pool, 7, &value); SAY("used", value);
    CALL(cuMemGetAddressRange_v2, &before, &value, a); SAY("stream-ordered range size", value);
    ASK("cuMemFreeAsync", cuMemFreeAsync, a, stream);
    CALL(cuMemPoolGetAttribute, pool, 7, &value); SAY("used after free", value);
    ASK("cuMemFreeAsync twice", cuMemFreeAsync, a, stream);
    ASK("cuMemFreeAsync NULL", cuMemFreeAsync, 0UL, stream);
    ASK("cuMemFreeAsync inside", cuMemFreeAsync, b + 8, stream);
    ASK("cuMemFree_v2 of stream-ordered memory", cuMemFree_v2, b);
    CALL(cuMemPoolGetAttribute, pool, 5, &value); SAY("reserved before synchronize", value);
    CALL(cuStreamSynchronize, stream);
    CALL(cuMemPoolGetAttribute, pool, 5, &value); SAY("reserved after synchronize", value);
    CALL(cuMemPoolGetAttribute, pool, 6, &value); SAY("reserved high", value);
    CALL(cuMemPoolGetAttribute, pool, 8, &value); SAY("used high", value);
    value = 0; ASK("reset of used high", cuMemPoolSetAttribute, pool, 8, &value);
    value = 5; ASK("used high to 5", cuMemPoolSetAttribute, pool, 8, &value);
    ASK("used current to 5", cuMemPoolSetAttribute, pool, 7, &value);
    value = ~0UL; ASK("release threshold", cuMemPoolSetAttribute, pool, 4, &value);
    CALL(cuMemAllocAsync, &a, 40 * MIB, stream);
    CALL(cuMemPoolGetAttribute, pool, 5, &value); SAY("reserved with 40 MiB", value);
    CALL(cuMemAllocAsync, &b, 3 * MIB, stream);
    CALL(cuMemPoolGetAttribute, pool, 5, &value); SAY("reserved with 43 MiB", value);
    CALL(cuMemFreeAsync, a, stream); CALL(cuStreamSynchronize, stream);
    CALL(cuMemPoolGetAttribute, pool, 5, &value); SAY("reserved with a threshold", value);
    ASK("cuMemPoolTrimTo", cuMemPoolTrimTo, pool, 0UL);
    CALL(cuMemPoolGetAttribute, pool, 5, &value); SAY("reserved after trim", value);
    CALL(cuMemFreeAsync, b, stream); CALL(cuStreamSynchronize, stream); CALL(cuMemPoolTrimTo, pool, 0UL);
    CALL(cuMemPoolGetAttribute, pool, 5, &value); SAY("reserved after all", value);
    value = 0; CALL(cuMemPoolSetAttribute, pool, 4, &value);
    ASK("cuMemPoolDestroy of the default pool", cuMemPoolDestroy, pool);
    ASK("cuMemPoolCreate", cuMemPoolCreate, &own, &properties);
    properties.location.id = 99; ASK("cuMemPoolCreate of a device that is not there", cuMemPoolCreate, &a, &properties);
    ASK("cuMemAllocFromPoolAsync", cuMemAllocFromPoolAsync, &a, 100UL, own, stream);
    ASK("cuDeviceSetMemPool", cuDeviceSetMemPool, 0, own);
    ASK("cuMemPoolDestroy with live memory", cuMemPoolDestroy, own);
    CALL(cuDeviceGetMemPool, &own, 0); SAY("default pool is back", own == pool);
    ASK("cuMemFreeAsync of a destroyed pool", cuMemFreeAsync, a, stream);
    ASK("cuMemPoolGetAttribute of a destroyed pool", cuMemPoolGetAttribute, NULL, 4, &value);
    { struct access all = {{1, 0}, 3}, none = {{1, 0}, 0}; unsigned flags = 9; struct location here = {1, 0};
      ASK("cuMemPoolGetAccess", cuMemPoolGetAccess, &flags, pool, &here); SAY("pool access", flags);
      ASK("cuMemPoolSetAccess of its own device", cuMemPoolSetAccess, pool, &all, 1UL);
      ASK("cuMemPoolSetAccess to none", cuMemPoolSetAccess, pool, &none, 1UL); }
    CALL(cuMemAlloc_v2, &a, 100UL); ASK("cuMemFreeAsync of cuMemAlloc memory", cuMemFreeAsync, a, stream);
    CALL(cuStreamSynchronize, stream); ASK("cuMemFree_v2 after cuMemFreeAsync", cuMemFree_v2, a);
    CALL(cuStreamDestroy_v2, stream);
}

static void virtual_memory(void) {
    word base = 0, other = 0, handle = 0, second = 0, grain = 0, before; char text[64]; unsigned long long flags = 9;
    struct allocation_properties properties = {.type = 1, .location = {1, 0}};
    struct allocation_properties answer;
    struct access access = {{1, 0}, 3}; struct location here = {1, 0};
    ASK("granularity", cuMemGetAllocationGranularity, &grain, &properties, 0); SAY("minimum", grain);
    CALL(cuMemGetAllocationGranularity, &grain, &properties, 1); SAY("recommended", grain);
    ASK("cuMemAddressReserve", cuMemAddressReserve, &base, 64 * MIB, 0UL, 0UL, 0UL); SAY("reservation is aligned", base % (2 * MIB));
    ASK("cuMemAddressReserve of 0 bytes", cuMemAddressReserve, &other, 0UL, 0UL, 0UL, 0UL);
    ASK("cuMemAddressReserve of 1 MiB", cuMemAddressReserve, &other, 1 * MIB, 0UL, 0UL, 0UL);
    ASK("cuMemAddressReserve with flags", cuMemAddressReserve, &other, 2 * MIB, 0UL, 0UL, 1UL);
    ASK("cuMemAddressReserve aligned to 3", cuMemAddressReserve, &other, 2 * MIB, 3UL, 0UL, 0UL);
    before = free_memory();
    ASK("cuMemCreate", cuMemCreate, &handle, 4 * MIB, &properties, 0UL); SAY("a handle takes", before - free_memory());
    ASK("cuMemCreate of 1 MiB", cuMemCreate, &second, 1 * MIB, &properties, 0UL);
    ASK("cuMemCreate of 0 bytes", cuMemCreate, &second, 0UL, &properties, 0UL);
    ASK("cuMemCreate larger than the card", cuMemCreate, &second, 4UL << 40, &properties, 0UL);
    properties.location.id = 99; ASK("cuMemCreate on a device that is not there", cuMemCreate, &second, 2 * MIB, &properties, 0UL);
    properties.location.id = 0; properties.type = 0; ASK("cuMemCreate of no type", cuMemCreate, &second, 2 * MIB, &properties, 0UL);
    properties.type = 1;
    ASK("cuMemMap with an offset", cuMemMap, base, 2 * MIB, 2 * MIB, handle, 0UL);
    ASK("cuMemMap of a part", cuMemMap, base, 2 * MIB, 0UL, handle, 0UL);
    ASK("cuMemMap of more", cuMemMap, base, 6 * MIB, 0UL, handle, 0UL);
    ASK("cuMemMap not aligned", cuMemMap, base + 4096, 4 * MIB, 0UL, handle, 0UL);
    ASK("cuMemMap with flags", cuMemMap, base, 4 * MIB, 0UL, handle, 1UL);
    ASK("cuMemMap of no handle", cuMemMap, base, 4 * MIB, 0UL, 0UL, 0UL);
    ASK("cuMemMap", cuMemMap, base, 4 * MIB, 0UL, handle, 0UL);
    ASK("cuMemMap over a mapping", cuMemMap, base + 2 * MIB, 4 * MIB, 0UL, handle, 0UL);
    ASK("cuMemMap at a second address", cuMemMap, base + 8 * MIB, 4 * MIB, 0UL, handle, 0UL);
    ASK("copy to reserved memory", cuMemcpyHtoD_v2, base + 32 * MIB, text, 8UL);
    ASK("copy to memory without access", cuMemcpyHtoD_v2, base, text, 8UL);
    ASK("cuMemGetAccess before", cuMemGetAccess, &flags, &here, base); SAY("access", flags);
    ASK("cuMemSetAccess of a part", cuMemSetAccess, base, 2 * MIB, &access, 1UL);
    ASK("cuMemSetAccess over a gap", cuMemSetAccess, base, 12 * MIB, &access, 1UL);
    ASK("cuMemSetAccess of nothing", cuMemSetAccess, base, 4 * MIB, &access, 0UL);
    ASK("cuMemSetAccess", cuMemSetAccess, base, 4 * MIB, &access, 1UL); CALL(cuMemSetAccess, base + 8 * MIB, 4 * MIB, &access, 1UL);
    ASK("cuMemGetAccess", cuMemGetAccess, &flags, &here, base); SAY("access", flags);
    ASK("cuMemGetAccess of reserved memory", cuMemGetAccess, &flags, &here, base + 32 * MIB);
    strcpy(text, "seen at both addresses");
    ASK("copy in", cuMemcpyHtoD_v2, base + 100, text, 32UL); memset(text, 0, sizeof text);
    ASK("copy out", cuMemcpyDtoH_v2, text, base + 8 * MIB + 100, 32UL); SAY(text, 1);
    ASK("copy over the end", cuMemcpyHtoD_v2, base + 4 * MIB - 8, text, 32UL);
    ASK("cuMemFree_v2 of mapped memory", cuMemFree_v2, base);
    ASK("cuMemFreeAsync of mapped memory", cuMemFreeAsync, base, NULL);
    ASK("cuMemGetAddressRange_v2 of mapped memory", cuMemGetAddressRange_v2, &other, &before, base + 3 * MIB);
    SAY("mapped base", other - base); SAY("mapped size", before);
    ASK("cuMemRetainAllocationHandle", cuMemRetainAllocationHandle, &second, base + 3 * MIB); SAY("same handle", second == handle);
    ASK("cuMemRetainAllocationHandle of reserved memory", cuMemRetainAllocationHandle, &second, base + 32 * MIB);
    ASK("cuMemGetAllocationPropertiesFromHandle", cuMemGetAllocationPropertiesFromHandle, &answer, handle);
    SAY("type", answer.type); SAY("location", answer.location.type);
    ASK("cuMemRelease", cuMemRelease, handle); ASK("cuMemRelease of the retained one", cuMemRelease, handle);
    ASK("cuMemRelease once too often", cuMemRelease, handle);
    ASK("copy after release", cuMemcpyHtoD_v2, base + 100, text, 32UL);
    ASK("cuMemAddressFree with mappings", cuMemAddressFree, base, 64 * MIB);
    ASK("cuMemUnmap of a part", cuMemUnmap, base, 2 * MIB);
    ASK("cuMemUnmap over a gap", cuMemUnmap, base, 12 * MIB);
    before = free_memory();
    ASK("cuMemUnmap", cuMemUnmap, base, 4 * MIB); SAY("still mapped elsewhere", free_memory() - before);
    ASK("cuMemUnmap twice", cuMemUnmap, base, 4 * MIB);
    ASK("cuMemUnmap of nothing", cuMemUnmap, 0x200000UL, 4 * MIB);
    ASK("cuMemSetAccess of reserved memory", cuMemSetAccess, base, 4 * MIB, &access, 1UL);
    ASK("cuMemUnmap of the last", cuMemUnmap, base + 8 * MIB, 4 * MIB); SAY("comes back", free_memory() - before);
    CALL(cuMemCreate, &handle, 2 * MIB, &properties, 0UL); CALL(cuMemCreate, &second, 2 * MIB, &properties, 0UL);
    CALL(cuMemMap, base, 2 * MIB, 0UL, handle, 0UL); CALL(cuMemMap, base + 2 * MIB, 2 * MIB, 0UL, second, 0UL);
    ASK("cuMemSetAccess over two handles", cuMemSetAccess, base, 4 * MIB, &access, 1UL);
    ASK("copy over the seam", cuMemcpyHtoD_v2, base + 2 * MIB - 8, text, 32UL);
    ASK("cuMemUnmap over two handles", cuMemUnmap, base, 4 * MIB);
    CALL(cuMemRelease, handle); CALL(cuMemRelease, second);
    ASK("cuMemAddressFree of a part", cuMemAddressFree, base, 2 * MIB);
    ASK("cuMemAddressFree", cuMemAddressFree, base, 64 * MIB);
    ASK("cuMemAddressFree twice", cuMemAddressFree, base, 64 * MIB);
    properties.location.type = 3;
    ASK("host granularity", cuMemGetAllocationGranularity, &grain, &properties, 0); SAY("host minimum", grain);
    before = free_memory();
    ASK("cuMemCreate on the host", cuMemCreate, &handle, 2 * MIB, &properties, 0UL); SAY("takes device memory", before - free_memory());
    CALL(cuMemAddressReserve, &base, 2 * MIB, 0UL, 0UL, 0UL);
    ASK("cuMemMap of host memory", cuMemMap, base, 2 * MIB, 0UL, handle, 0UL);
    ASK("cuMemSetAccess of host memory", cuMemSetAccess, base, 2 * MIB, &access, 1UL);
    ASK("copy to host memory", cuMemcpyHtoD_v2, base, text, 8UL);
    CALL(cuMemUnmap, base, 2 * MIB); CALL(cuMemRelease, handle); CALL(cuMemAddressFree, base, 2 * MIB);
}

static void *captured_stream; static word handed;
static void *ask_elsewhere(void *unused) {
    void *context; word a = 0; (void)unused; CALL(cuDevicePrimaryCtxRetain, &context, 0); CALL(cuCtxSetCurrent, context);
    SAY("on another thread", CALL(cuMemAlloc_v2, &a, 512UL)); if (a) CALL(cuMemFree_v2, a);
    CALL(cuDevicePrimaryCtxRelease_v2, 0); return NULL;
}
static void capture_one(const char *what, int mode, int which) {
    void *graph = NULL, *event, *other; word a = 0; int status = 9; char text[96]; pthread_t thread; int relaxed = 2;
    CALL(cuEventCreate, &event, 0); CALL(cuStreamCreate, &other, 1); CALL(cuStreamCreate, &captured_stream, 1); handed = 0;
    word freed = 0; CALL(cuMemAlloc_v2, &freed, 512UL); CALL(cuEventRecord, event, other); CALL(cuStreamSynchronize, other);
    int begun = CALL(cuStreamBeginCapture_v2, captured_stream, mode), answer = -1;
    switch (which) {
        case 0: break;
        case 1: answer = CALL(cuMemAlloc_v2, &a, 512UL); break;
        case 2: answer = CALL(cuEventQuery, event); break;
        case 3: answer = CALL(cuMemAllocAsync, &a, 512UL, captured_stream); break;
        case 4: answer = CALL(cuMemAllocAsync, &a, 512UL, other); break;
        case 5: answer = CALL(cuMemAllocAsync, &a, 512UL, NULL); break;
        case 6: answer = CALL(cuStreamSynchronize, captured_stream); break;
        case 7: answer = CALL(cuStreamSynchronize, other); break;
        case 8: answer = CALL(cuMemFree_v2, freed); freed = 0; break;
        case 9: pthread_create(&thread, NULL, ask_elsewhere, NULL); pthread_join(thread, NULL); break;
        case 10: CALL(cuThreadExchangeStreamCaptureMode, &relaxed); answer = CALL(cuMemAlloc_v2, &a, 512UL);
                 CALL(cuThreadExchangeStreamCaptureMode, &relaxed); break;
        case 11: answer = CALL(cuStreamQuery, captured_stream); break;
        case 12: answer = CALL(cuCtxSynchronize); break;
        case 13: answer = CALL(cuMemHostAlloc, &a, 512UL, 0); break;
        case 14: answer = CALL(cuMemsetD8Async, freed, 1, 4UL, NULL); break;
        case 15: answer = CALL(cuMemsetD8_v2, freed, 1, 4UL); break;
        case 16: answer = CALL(cuMemsetD8Async, freed, 1, 4UL, captured_stream); break;
        case 17: answer = CALL(cuMemGetInfo_v2, &a, &handed); break;
        case 18: answer = CALL(cuEventSynchronize, event); break;
        case 19: answer = CALL(cuMemsetD8Async, freed, 1, 4UL, other); break;
        case 20: answer = CALL(cuEventRecord, event, captured_stream) * 1000 + CALL(cuEventQuery, event); break;
        case 21: answer = CALL(cuMemFreeAsync, freed, captured_stream); break;
    }
    CALL(cuStreamIsCapturing, captured_stream, &status);
    int ended = CALL(cuStreamEndCapture, captured_stream, &graph);
    snprintf(text, sizeof text, "capture mode %d, %s: begin", mode, what); SAY(text, begun);
    snprintf(text, sizeof text, "capture mode %d, %s: call", mode, what); SAY(text, answer);
    snprintf(text, sizeof text, "capture mode %d, %s: status", mode, what); SAY(text, status);
    snprintf(text, sizeof text, "capture mode %d, %s: end", mode, what); SAY(text, ended);
    snprintf(text, sizeof text, "capture mode %d, %s: graph", mode, what); SAY(text, graph != NULL);
    if (graph) CALL(cuGraphDestroy, graph);
    CALL(cuStreamDestroy_v2, captured_stream); CALL(cuStreamDestroy_v2, other); CALL(cuEventDestroy_v2, event);
}
static void captures(void) {
    static const char *names[] = {"nothing", "cuMemAlloc_v2", "cuEventQuery", "cuMemAllocAsync", "cuMemAllocAsync elsewhere",
        "cuMemAllocAsync default", "cuStreamSynchronize", "cuStreamSynchronize elsewhere", "cuMemFree_v2", "another thread",
        "cuMemAlloc_v2 relaxed", "cuStreamQuery", "cuCtxSynchronize", "cuMemHostAlloc", "cuMemsetD8Async default", "cuMemsetD8_v2",
        "cuMemsetD8Async", "cuMemGetInfo_v2", "cuEventSynchronize", "cuMemsetD8Async elsewhere", "cuEventRecord", "cuMemFreeAsync"};
    int mode, which; void *graph;
    for (mode = 0; mode < 3; mode++) for (which = 0; which < 22; which++) capture_one(names[which], mode, which);
    ASK("cuStreamBeginCapture_v2 of the default stream", cuStreamBeginCapture_v2, NULL, 0);
    void *stream; CALL(cuStreamCreate, &stream, 1);
    ASK("cuStreamBeginCapture_v2 in no mode", cuStreamBeginCapture_v2, stream, 7);
    ASK("cuStreamEndCapture without begin", cuStreamEndCapture, stream, &graph);
    CALL(cuStreamBeginCapture_v2, stream, 2); ASK("cuStreamBeginCapture_v2 twice", cuStreamBeginCapture_v2, stream, 2);
    CALL(cuStreamEndCapture, stream, &graph); CALL(cuGraphDestroy, graph); CALL(cuStreamDestroy_v2, stream);
}

static void graphs(void) {
    void *graph, *first, *second, *running, *stream; word value = 0, before; char text[16] = "graph";
    struct node_parameters parameters = {.pool = {.allocation_type = 1, .location = {1, 0}}, .bytes = 4 * MIB};
    CALL(cuStreamCreate, &stream, 1);
    ASK("cuGraphCreate", cuGraphCreate, &graph, 0);
    before = free_memory();
    ASK("cuGraphAddMemAllocNode", cuGraphAddMemAllocNode, &first, graph, NULL, 0UL, &parameters);
    SAY("an address was given", parameters.address != 0); SAY("a node takes", before - free_memory());
    ASK("copy before the launch", cuMemcpyHtoD_v2, parameters.address, text, 8UL);
    ASK("cuGraphInstantiateWithFlags", cuGraphInstantiateWithFlags, &running, graph, 0ULL);
    ASK("cuGraphLaunch", cuGraphLaunch, running, stream); CALL(cuStreamSynchronize, stream);
    CALL(cuDeviceGetGraphMemAttribute, 0, 0, &value); SAY("graph memory used", value);
    CALL(cuDeviceGetGraphMemAttribute, 0, 2, &value); fprintf(stderr, "graph memory reserved %lu\n", value);
    ASK("copy after the launch", cuMemcpyHtoD_v2, parameters.address, text, 8UL);
    ASK("cuGraphLaunch with memory not freed", cuGraphLaunch, running, stream);
    ASK("cuMemFreeAsync of a node's memory", cuMemFreeAsync, parameters.address, stream);
    CALL(cuStreamSynchronize, stream);
    CALL(cuDeviceGetGraphMemAttribute, 0, 0, &value); SAY("graph memory used after free", value);
    ASK("cuGraphLaunch again", cuGraphLaunch, running, stream); CALL(cuStreamSynchronize, stream);
    ASK("cuMemFree_v2 of a node's memory", cuMemFree_v2, parameters.address);
    ASK("cuDeviceGraphMemTrim", cuDeviceGraphMemTrim, 0);
    CALL(cuDeviceGetGraphMemAttribute, 0, 2, &value); SAY("graph memory reserved after trim", value);
    ASK("cuGraphExecDestroy", cuGraphExecDestroy, running);
    ASK("cuGraphDestroy of the first", cuGraphDestroy, graph); CALL(cuGraphCreate, &graph, 0);
    CALL(cuGraphAddMemAllocNode, &first, graph, NULL, 0UL, &parameters);
    ASK("cuGraphAddMemFreeNode", cuGraphAddMemFreeNode, &second, graph, &first, 1UL, parameters.address);
    ASK("cuGraphAddMemFreeNode twice", cuGraphAddMemFreeNode, &second, graph, &first, 1UL, parameters.address);
    ASK("cuGraphInstantiateWithFlags of both", cuGraphInstantiateWithFlags, &running, graph, 0ULL);
    ASK("launch of both", cuGraphLaunch, running, stream); ASK("launch of both again", cuGraphLaunch, running, stream);
    ASK("copy after the launch of both", cuMemcpyHtoD_v2, parameters.address, text, 8UL);
    CALL(cuStreamSynchronize, stream); CALL(cuGraphExecDestroy, running);
    CALL(cuGraphDestroy, graph); CALL(cuGraphCreate, &graph, 0); CALL(cuGraphAddMemAllocNode, &first, graph, NULL, 0UL, &parameters);
    ASK("cuGraphInstantiateWithFlags freeing on launch", cuGraphInstantiateWithFlags, &running, graph, 1ULL);
    ASK("first launch", cuGraphLaunch, running, stream); ASK("second launch", cuGraphLaunch, running, stream);
    CALL(cuStreamSynchronize, stream); CALL(cuMemFree_v2, parameters.address); CALL(cuGraphExecDestroy, running);
    ASK("cuGraphDestroy", cuGraphDestroy, graph); CALL(cuDeviceGraphMemTrim, 0); CALL(cuStreamDestroy_v2, stream);
}

static void arrays_and_exchange(void) {
    struct { word width, height; int format; unsigned channels; } flat = {100, 10, 1, 4};
    struct { word width, height, depth; int format; unsigned channels, flags; } deep = {64, 64, 64, 0x20, 4, 0};
    void *array, *levels; char handle[64]; word a = 0, b = 0, stream_ordered = 0, base = 0, mapped = 0;
    struct allocation_properties properties = {.type = 1, .location = {1, 0}}; struct access access = {{1, 0}, 3};
    ASK("cuArrayCreate_v2", cuArrayCreate_v2, &array, &flat);
    ASK("cuArrayDestroy", cuArrayDestroy, array);
    flat.channels = 3; ASK("cuArrayCreate_v2 with three channels", cuArrayCreate_v2, &array, &flat); flat.channels = 4;
    flat.width = 0; ASK("cuArrayCreate_v2 without width", cuArrayCreate_v2, &array, &flat);
    ASK("cuArray3DCreate_v2", cuArray3DCreate_v2, &array, &deep); ASK("cuArrayDestroy", cuArrayDestroy, array);
    ASK("cuMipmappedArrayCreate", cuMipmappedArrayCreate, &levels, &deep, 3);
    ASK("cuMipmappedArrayGetLevel", cuMipmappedArrayGetLevel, &array, levels, 1);
    ASK("cuMipmappedArrayGetLevel too high", cuMipmappedArrayGetLevel, &array, levels, 9);
    ASK("cuMipmappedArrayDestroy", cuMipmappedArrayDestroy, levels);
    CALL(cuMemAlloc_v2, &a, 4 * MIB); CALL(cuMemAllocAsync, &stream_ordered, 512UL, NULL);
    ASK("cuIpcGetMemHandle", cuIpcGetMemHandle, handle, a);
    ASK("cuIpcGetMemHandle of stream-ordered memory", cuIpcGetMemHandle, &base, stream_ordered);
    CALL(cuMemAddressReserve, &base, 2 * MIB, 0UL, 0UL, 0UL); CALL(cuMemCreate, &mapped, 2 * MIB, &properties, 0UL);
    CALL(cuMemMap, base, 2 * MIB, 0UL, mapped, 0UL); CALL(cuMemSetAccess, base, 2 * MIB, &access, 1UL);
    { char other[64]; ASK("cuIpcGetMemHandle of virtual memory", cuIpcGetMemHandle, other, base);
      ASK("cuIpcGetMemHandle of nothing", cuIpcGetMemHandle, other, 0x1000UL); }
    (void)b; CALL(cuMemUnmap, base, 2 * MIB); CALL(cuMemRelease, mapped); CALL(cuMemAddressFree, base, 2 * MIB);
    CALL(cuMemFree_v2, a); CALL(cuMemFreeAsync, stream_ordered, NULL); CALL(cuCtxSynchronize);
}

static const char code[] = ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry nothing() { ret; }\n";
static void kernels(void) {
    void *module, *function, *library, *kernel, *same; int value = 0;
    ASK("cuModuleLoadData", cuModuleLoadData, &module, code);
    ASK("cuModuleLoadData NULL", cuModuleLoadData, &function, NULL);
    ASK("cuModuleGetFunction", cuModuleGetFunction, &function, module, "nothing");
    CALL(cuModuleGetFunction, &same, module, "nothing"); SAY("same function", same == function);
    ASK("launch", cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    ASK("launch without grid", cuLaunchKernel, function, 0, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    ASK("launch without block", cuLaunchKernel, function, 1, 1, 1, 0, 1, 1, 0, NULL, NULL, NULL);
    ASK("launch of 1025 threads", cuLaunchKernel, function, 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, NULL);
    ASK("launch of 64 x 32 threads", cuLaunchKernel, function, 1, 1, 1, 64, 32, 1, 0, NULL, NULL, NULL);
    ASK("launch with z of 65", cuLaunchKernel, function, 1, 1, 1, 1, 1, 65, 0, NULL, NULL, NULL);
    ASK("launch with a grid of 65536 in y", cuLaunchKernel, function, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    ASK("launch with 48 KiB shared", cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 49152, NULL, NULL, NULL);
    ASK("launch with 48 KiB and 1 shared", cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 49153, NULL, NULL, NULL);
    ASK("launch with 4 MiB shared", cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 4194304, NULL, NULL, NULL);
    ASK("cuFuncSetAttribute 64 KiB", cuFuncSetAttribute, function, 8, 65536);
    ASK("launch with 64 KiB shared", cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 65536, NULL, NULL, NULL);
    ASK("cuFuncSetAttribute 4 MiB", cuFuncSetAttribute, function, 8, 4194304);
    ASK("cuFuncSetAttribute of what cannot be set", cuFuncSetAttribute, function, 0, 1);
    ASK("cuFuncGetAttribute", cuFuncGetAttribute, &value, 0, function); SAY("most threads", value);
    CALL(cuFuncGetAttribute, &value, 8, function); SAY("most shared", value);
    ASK("occupancy", cuOccupancyMaxActiveBlocksPerMultiprocessor, &value, function, 128, 0UL); SAY("blocks", value);
    ASK("cuModuleUnload", cuModuleUnload, module);
    ASK("cuLibraryLoadData", cuLibraryLoadData, &library, code, NULL, NULL, 0, NULL, NULL, 0);
    ASK("cuLibraryGetKernel", cuLibraryGetKernel, &kernel, library, "nothing");
    ASK("cuKernelGetFunction", cuKernelGetFunction, &function, kernel);
    ASK("launch of a kernel handle", cuLaunchKernel, kernel, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    CALL(cuCtxSynchronize); ASK("cuLibraryUnload", cuLibraryUnload, library);
}

/* Every base name in the list given as the first argument, asked for with several versions: which symbol is it? */
static void resolution(const char *list) {
    static char names[800][64]; int count = 0, i, j, v, flag; FILE *file = fopen(list, "r");
    static const int versions[] = {2000, 2010, 2020, 2030, 3000, 3010, 3020, 4000, 4010, 5000, 5050, 6000, 6050, 7000, 7050, 8000, 9000, 10000, 10010, 11000, 11010, 11020, 11030, 11040, 11060, 11070,
        11080, 12000, 12010, 12020, 12030, 12040, 12050, 12060, 12080, 12090, 13000};
    while (file && count < 800 && fscanf(file, "%63s", names[count]) == 1) count++;
    for (i = 0; i < count; i++) {
        char *base = names[i]; int n = strlen(base);
        if (strstr(base, "_pt") || (n > 3 && base[n - 3] == '_' && base[n - 2] == 'v')) continue;
        for (flag = 0; flag <= 2; flag += 2) {
            const char *last = "";
            for (v = 0; v < (int)(sizeof versions / sizeof *versions); v++) {
                void *found = NULL; int status = -1; const char *which = "";
                int answer = CALL(cuGetProcAddress_v2, base, &found, versions[v], (unsigned long long)flag, &status);
                if (answer == 0 && found) {
                    which = "?"; for (j = 0; j < count; j++) if (dlsym(driver, names[j]) == found) { which = names[j]; if (!strncmp(base, which, n)) break; }
                }
                if (strcmp(which, last)) fprintf(stderr, "RESOLVE %s %d %d %s\n", base, flag, versions[v], which);
                last = which;
            }
        }
    }
}
static void resolving(void) {
    void *found; int status;
#define RESOLVE(name, version, flags) do { char text[96]; status = 9; found = (void *)1; \
    int answer = CALL(cuGetProcAddress_v2, name, &found, version, (unsigned long long)flags, &status); \
    snprintf(text, sizeof text, "%s %d %d", name, version, (int)flags); SAY(text, answer); SAY("status", status); SAY("found", found != NULL); } while (0)
    RESOLVE("cuMemAlloc", 12000, 0); RESOLVE("cuMemAlloc", 2000, 0); RESOLVE("cuMemAlloc", 1000, 0); RESOLVE("cuMemAlloc_v2", 12000, 0);
    RESOLVE("cuMemAllocAsync", 12000, 0); RESOLVE("cuMemAllocAsync", 12000, 1); RESOLVE("cuMemAllocAsync", 12000, 2);
    RESOLVE("cuMemAllocAsync", 10000, 0); RESOLVE("cuNothing", 12000, 0); RESOLVE("", 12000, 0); RESOLVE("cuMemAlloc", 99000, 0);
    RESOLVE("cuMemAllocAsync", 12000, 4); RESOLVE("cuMemAllocAsync_ptsz", 12000, 0); RESOLVE("cuGetProcAddress", 12000, 0);
    ASK("without a place for the status", cuGetProcAddress_v2, "cuMemAlloc", &found, 12000, 0ULL, NULL);
    ASK("without a place for the status, unknown", cuGetProcAddress_v2, "cuNothing", &found, 12000, 0ULL, NULL);
    ASK("first version, unknown", cuGetProcAddress, "cuNothing", &found, 12000, 0ULL);
    const char *text = NULL; int code_number;
    for (code_number = 0; code_number < 1000; code_number++)
        if (CALL(cuGetErrorName, code_number, &text) == 0 && text) { const char *words = ""; CALL(cuGetErrorString, code_number, &words);
            printf("error %d = %s, %s\n", code_number, text, words); }
    ASK("cuGetErrorName of no error", cuGetErrorName, 12345, &text); SAY("is NULL", text == NULL);
    unsigned char table[16] = {1}; const void *answer_table = NULL;
    ASK("cuGetExportTable of no table", cuGetExportTable, &answer_table, table);
}

static void after_fork(void) {
    fflush(stdout); pid_t child = fork();
    if (child == 0) { word a; int count; void *c; ASK("in a forked child: cuInit", cuInit, 0); ASK("in a forked child: cuMemAlloc_v2", cuMemAlloc_v2, &a, 512UL);
        ASK("in a forked child: cuCtxGetCurrent", cuCtxGetCurrent, &c); ASK("in a forked child: cuDeviceGetCount", cuDeviceGetCount, &count);
        ASK("in a forked child: cuDriverGetVersion", cuDriverGetVersion, &count); fflush(stdout); _exit(0); }
    waitpid(child, NULL, 0);
}
static void at_exit(void) { word a; ASK("at exit: cuMemAlloc_v2", cuMemAlloc_v2, &a, 512UL); ASK("at exit: cuCtxSynchronize", cuCtxSynchronize);
    ASK("at exit: cuInit", cuInit, 0); int n; ASK("at exit: cuDriverGetVersion", cuDriverGetVersion, &n); }

static const struct { const char *name; void (*ask)(void); } sections[] = {
    {"contexts", contexts}, {"limits", limits}, {"linear", linear}, {"first", first_forms}, {"host", host}, {"pointers", pointers},
    {"streams", streams}, {"pools", pools}, {"virtual", virtual_memory}, {"captures", captures}, {"graphs", graphs},
    {"arrays", arrays_and_exchange}, {"kernels", kernels}, {"resolving", resolving}, {"fork", after_fork}, {"exit", NULL}};

/* One section per process, so that nothing one section leaves behind changes what another is told. */
int main(int count, char **arguments) {
    unsigned i; void *context; const char *section = count > 1 ? arguments[1] : "";
    if (!strcmp(section, "exit")) atexit(at_exit);
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) { puts(dlerror()); return 2; }
    if (!strcmp(section, "contexts")) before_start();
    ASK("cuInit", cuInit, 0);
    if (strcmp(section, "contexts")) { CALL(cuDevicePrimaryCtxRetain, &context, 0); CALL(cuCtxSetCurrent, context); }
    for (i = 0; i < sizeof sections / sizeof *sections; i++)
        if (!strcmp(section, sections[i].name) && sections[i].ask) sections[i].ask();
    if (!strcmp(section, "names") && count > 2) {
        int attribute, value; resolution(arguments[2]);
        for (attribute = 1; attribute < 160; attribute++) {
            value = -1; int answer = CALL(cuDeviceGetAttribute, &value, attribute, 0);
            fprintf(stderr, "ATTRIBUTE %d %d %d\n", attribute, answer, value);
        }
    }
    return 0;
}
