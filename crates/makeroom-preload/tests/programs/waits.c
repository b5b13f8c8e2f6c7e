// Frees in stream order, and every way to wait for them. The argument says which frees the program waits for in the end;
// each way leaves exactly the frees that it does not cover.
#include "cuda.h"
#include <pthread.h>
#include <string.h>
CUresult cuStreamSynchronize(CUhandle), cuStreamSynchronize_ptsz(CUhandle), cuStreamQuery(CUhandle);
CUresult cuCtxSynchronize(void), cuEventCreate(CUhandle *, unsigned), cuEventRecord(CUhandle, CUhandle);
CUresult cuEventSynchronize(CUhandle), cuEventQuery(CUhandle), cuEventDestroy_v2(CUhandle);
CUresult cuStreamDestroy_v2(CUhandle), cuMemFreeAsync_ptsz(CUdeviceptr, CUhandle);
static CUhandle streams[2];
static CUhandle context;
static CUdeviceptr blocks[4];
static void *wait_elsewhere(void *unused) {
    OK(cuCtxSetCurrent(context));
    OK(cuStreamSynchronize_ptsz(0));
    return 0;
}
int main(int count, char **words) {
    const char *way = words[1];
    CUhandle event, other;
    pthread_t thread;
    context = begin();
    for (int i = 0; i < 2; i++) OK(cuStreamCreate(&streams[i], 1));
    OK(cuEventCreate(&event, 0));
    OK(cuEventCreate(&other, 0));
    for (int i = 0; i < 4; i++) OK(cuMemAllocAsync(&blocks[i], (1 << i) << 20, streams[0]));
    OK(cuStreamSynchronize(streams[0]));
    OK(cuMemFreeAsync(blocks[0], streams[0]));
    OK(cuMemFreeAsync(blocks[1], streams[1]));
    if (!strcmp(way, "stream")) OK(cuStreamSynchronize(streams[0]));
    if (!strcmp(way, "query")) OK(cuStreamQuery(streams[1]));
    if (!strcmp(way, "context")) OK(cuCtxSynchronize());
    if (!strcmp(way, "event") || !strcmp(way, "moved") || !strcmp(way, "destroyed")) OK(cuEventRecord(event, streams[0]));
    if (!strcmp(way, "moved")) OK(cuEventRecord(event, 0));
    if (!strcmp(way, "destroyed")) {
        OK(cuEventDestroy_v2(event));
        OK(cuEventCreate(&event, 0));
    }
    OK(cuMemFreeAsync(blocks[2], streams[0]));
    OK(cuMemFreeAsync_ptsz(blocks[3], 0));
    if (!strcmp(way, "event") || !strcmp(way, "moved") || !strcmp(way, "destroyed")) OK(cuEventSynchronize(event));
    if (!strcmp(way, "event")) OK(cuEventQuery(event));
    if (!strcmp(way, "thread")) OK(cuStreamSynchronize_ptsz(0));
    if (!strcmp(way, "default")) OK(cuStreamSynchronize(0));
    if (!strcmp(way, "elsewhere")) {
        pthread_create(&thread, 0, wait_elsewhere, 0);
        pthread_join(thread, 0);
    }
    if (!strcmp(way, "stream-gone")) {
        OK(cuStreamDestroy_v2(streams[0]));
        OK(cuStreamCreate(&streams[0], 1));
        OK(cuStreamSynchronize(streams[0]));
    }
    if (!strcmp(way, "all")) {
        OK(cuStreamSynchronize(streams[0]));
        OK(cuCtxSynchronize());
        for (int i = 0; i < 1000; i++) OK(cuCtxSynchronize());
    }
    return 0;
}
