// Graphs that take and give memory, built by all functions there are for it; one that cannot be launched.
#include "cuda.h"
#include <unistd.h>
struct pool { int type, handles, location, id; void *security; size_t largest; char reserved[56]; };
struct allocation { struct pool pool; const void *access; size_t count, bytes; CUdeviceptr address; };
struct node { int type, reserved0[3]; union { struct allocation allocation; CUdeviceptr freed; long long room[29]; }; long long reserved2; };
CUresult cuGraphCreate(CUhandle *, unsigned), cuGraphDestroy(CUhandle);
CUresult cuGraphAddMemAllocNode(CUhandle *, CUhandle, const CUhandle *, size_t, struct allocation *);
CUresult cuGraphAddMemFreeNode(CUhandle *, CUhandle, const CUhandle *, size_t, CUdeviceptr);
CUresult cuGraphAddNode(CUhandle *, CUhandle, const CUhandle *, size_t, struct node *);
CUresult cuGraphAddNode_v2(CUhandle *, CUhandle, const CUhandle *, const void *, size_t, struct node *);
CUresult cuGraphInstantiateWithFlags(CUhandle *, CUhandle, uint64_t), cuGraphExecDestroy(CUhandle);
CUresult cuGraphLaunch(CUhandle, CUhandle), cuDeviceGraphMemTrim(int);
enum { EMPTY = 5, ALLOCATION = 10, FREE = 11, MIB = 1 << 20 };
int main(void) {
    struct allocation first = {.pool = {.type = 1, .location = 1}, .bytes = 3 * MIB};
    struct node second = {.type = ALLOCATION, .allocation = {.pool = {.type = 1, .location = 1}, .bytes = 5 * MIB}};
    struct node empty = {.type = EMPTY}, freed = {.type = FREE};
    CUhandle graph, nodes[5], executable, broken;
    begin();
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&nodes[0], graph, NULL, 0, &first));
    OK(cuGraphAddNode(&nodes[1], graph, &nodes[0], 1, &second));
    OK(cuGraphAddNode_v2(&nodes[2], graph, &nodes[1], NULL, 1, &empty));
    OK(cuGraphAddMemFreeNode(&nodes[3], graph, &nodes[2], 1, first.address));
    freed.freed = second.allocation.address;
    OK(cuGraphAddNode_v2(&nodes[4], graph, &nodes[3], NULL, 1, &freed));
    OK(cuGraphInstantiateWithFlags(&executable, graph, 0));
    printf("%d\n", cuGraphInstantiateWithFlags(&broken, (CUhandle)12345, 0));
    usleep(300000);
    OK(cuGraphLaunch(executable, 0));
    OK(cuDeviceGraphMemTrim(0));
    OK(cuGraphExecDestroy(executable));
    OK(cuGraphDestroy(graph));
    return 0;
}
