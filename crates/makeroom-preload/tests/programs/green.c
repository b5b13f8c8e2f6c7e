// A green context, and memory taken in the context it stands for.
#include "cuda.h"
struct resource { int type; char padding[92], rest[48]; };
CUresult cuDeviceGetDevResource(int, struct resource *, int), cuDevResourceGenerateDesc(CUhandle *, struct resource *, unsigned);
CUresult cuGreenCtxCreate(CUhandle *, CUhandle, int, unsigned), cuGreenCtxDestroy(CUhandle);
CUresult cuCtxFromGreenCtx(CUhandle *, CUhandle);
int main(void) {
    struct resource resource;
    CUhandle description, green, context;
    OK(cuInit(0));
    OK(cuDeviceGetDevResource(0, &resource, 1));
    OK(cuDevResourceGenerateDesc(&description, &resource, 1));
    OK(cuGreenCtxCreate(&green, description, 0, 1));
    OK(cuCtxFromGreenCtx(&context, green));
    OK(cuCtxSetCurrent(context));
    round_trip(1 << 20);
    OK(cuGreenCtxDestroy(green));
    printf("done\n");
    return 0;
}
