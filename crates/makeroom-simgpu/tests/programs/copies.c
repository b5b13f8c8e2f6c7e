/* Bytes arrive where they were sent: between cards, in rows and slices, through arrays, graphs and exchange handles. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef unsigned long word;
static void *driver;
#define CALL(name, ...) (((int (*)())dlsym(driver, #name))(__VA_ARGS__))
#define MUST(name, ...) do { int answer = CALL(name, __VA_ARGS__); if (answer) printf("%s = %d\n", #name, answer); } while (0)
#define SAME(what, condition) printf("%s %s\n", what, (condition) ? "arrives" : "IS LOST")

struct end2 { word x, y; unsigned kind; void *host; word device; void *array; word pitch; };
struct copy2 { struct end2 source, destination; word width, height; };
struct end3 { word x, y, z, level; unsigned kind; void *host; word device; void *array; void *reserved; word pitch, height; };
struct copy3 { struct end3 source, destination; word width, height, depth; };

int main(void) {
    void *contexts[2], *array, *stream, *graph, *running; word a, b, pitch, managed, opened; int i;
    static unsigned char out[6 << 20], in[6 << 20]; unsigned short halves[8]; unsigned words[8]; struct { char bytes[64]; } handle;
    struct { word width, height, depth; int format; unsigned channels, flags; } shape = {16, 4, 3, 1, 1, 0};
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    MUST(cuInit, 0); MUST(cuCtxCreate_v2, &contexts[1], 0, 1); MUST(cuCtxCreate_v2, &contexts[0], 0, 0);
    for (i = 0; i < (int)sizeof out; i++) out[i] = (unsigned char)(i * 31 + i / 256);

    MUST(cuMemAlloc_v2, &a, 6UL << 20); MUST(cuMemcpyHtoD_v2, a, out, sizeof out); MUST(cuMemcpyDtoH_v2, in, a, sizeof in);
    SAME("a block of three pages", !memcmp(in, out, sizeof in));
    MUST(cuMemcpyDtoD_v2, a + 1000, a, 3UL << 20); MUST(cuMemcpyDtoH_v2, in, a + 1000, 3UL << 20);
    SAME("a copy onto itself", !memcmp(in, out, 3 << 20));
    MUST(cuCtxPushCurrent_v2, contexts[1]); MUST(cuMemAlloc_v2, &b, 6UL << 20); MUST(cuCtxPopCurrent_v2, NULL);
    MUST(cuMemcpyHtoD_v2, a, out, sizeof out); MUST(cuMemcpyPeer, b, contexts[1], a, contexts[0], 6UL << 20);
    memset(in, 0, sizeof in); MUST(cuMemcpy, in, b, sizeof in); SAME("a copy between cards", !memcmp(in, out, sizeof in));
    MUST(cuMemsetD16_v2, a, 0xabcd, 8UL); MUST(cuMemcpyDtoH_v2, halves, a, 16UL); SAME("a fill of 16 bits", halves[0] == 0xabcd && halves[7] == 0xabcd);
    MUST(cuMemsetD32_v2, a + (2UL << 20) - 16, 0x12345678, 8UL); MUST(cuMemcpyDtoH_v2, words, a + (2UL << 20) - 16, 32UL);
    SAME("a fill over the end of a page", words[0] == 0x12345678 && words[7] == 0x12345678);

    MUST(cuMemAllocPitch_v2, &b, &pitch, 100UL, 20UL, 4);
    struct copy2 rows = {{0, 0, 1, out, 0, 0, 100}, {8, 2, 2, 0, b, 0, pitch}, 50, 10};
    MUST(cuMemcpy2D_v2, &rows); memset(in, 0, sizeof in);
    struct copy2 back = {{8, 2, 2, 0, b, 0, pitch}, {0, 0, 1, in, 0, 0, 100}, 50, 10};
    MUST(cuMemcpy2D_v2, &back); SAME("rows", !memcmp(in + 900, out + 900, 50) && in[950] == 0);
    rows.destination.y = 15; SAME("nothing outside the block", CALL(cuMemcpy2D_v2, &rows) == 1);
    MUST(cuMemsetD2D8_v2, b, pitch, 9, 3UL, 20UL); MUST(cuMemcpyDtoH_v2, in, b + 19 * pitch, 4UL); SAME("a fill of rows", in[2] == 9 && in[3] == 0);

    MUST(cuArray3DCreate_v2, &array, &shape);
    struct copy3 slices = {{0, 0, 0, 0, 1, out, 0, 0, 0, 16, 4}, {0, 0, 0, 0, 3, 0, 0, array, 0, 0, 0}, 16, 4, 3};
    MUST(cuMemcpy3D_v2, &slices); memset(in, 0, sizeof in);
    struct copy3 part = {{4, 1, 1, 0, 3, 0, 0, array, 0, 0, 0}, {0, 0, 0, 0, 1, in, 0, 0, 0, 8, 2}, 8, 2, 2};
    MUST(cuMemcpy3D_v2, &part); SAME("a part of an array", !memcmp(in, out + 64 + 16 + 4, 8) && !memcmp(in + 24, out + 128 + 32 + 4, 8));
    MUST(cuArrayDestroy, array);

    MUST(cuStreamCreate, &stream, 1); MUST(cuStreamBeginCapture_v2, stream, 0);
    MUST(cuMemcpyHtoDAsync_v2, a, out + 777, 4096UL, stream); MUST(cuMemsetD8Async, a, 5, 10UL, stream);
    MUST(cuStreamEndCapture, stream, &graph); MUST(cuGraphInstantiateWithFlags, &running, graph, 0UL);
    MUST(cuMemsetD8_v2, a, 0, 4096UL); MUST(cuMemcpyDtoH_v2, in, a, 4096UL); SAME("nothing before the launch of a graph", in[100] == 0);
    MUST(cuGraphLaunch, running, stream); MUST(cuStreamSynchronize, stream); MUST(cuMemcpyDtoH_v2, in, a, 4096UL);
    SAME("a graph's copy and fill", in[9] == 5 && !memcmp(in + 10, out + 787, 4086));

    MUST(cuMemAllocManaged, &managed, 100UL, 1); memset((void *)managed, 3, 100); MUST(cuMemcpyDtoD_v2, a, managed, 100UL);
    MUST(cuMemcpyDtoH_v2, in, a, 100UL); SAME("managed memory", in[99] == 3); MUST(cuMemFree_v2, managed);
    MUST(cuIpcGetMemHandle, &handle, a); MUST(cuIpcOpenMemHandle_v2, &opened, handle, 1);
    MUST(cuMemsetD8_v2, a + 5, 77, 1UL); MUST(cuMemcpyDtoH_v2, in, opened + 5, 1UL); SAME("memory through an exchange handle", opened != a && in[0] == 77);
    MUST(cuMemFree_v2, a); SAME("nothing through a handle of freed memory", CALL(cuMemcpyDtoH_v2, in, opened, 1UL) == 1);
    MUST(cuIpcCloseMemHandle, opened);
    MUST(cuMemAlloc_v2, &a, 6UL << 20); MUST(cuMemcpyDtoH_v2, in, a, sizeof in); SAME("zeros in memory that others freed", !in[0] && !in[9]);
    return 0;
}
