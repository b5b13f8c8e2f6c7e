// Random programs on the stand-in for PyTorch's allocator: blocks with known contents on several streams, growth that
// fails; with a fourth argument also a graph that is replayed after its blocks were freed, a shared block, a thread without
// a context and a fork; if it is "fill", all of the live bytes at once. Prints the figures of the pages, if there are any. Arguments: seed, steps, most live bytes in MiB.
#include "cuda.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
CUresult cuDevicePrimaryCtxRetain(CUhandle *, int);
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUhandle);
CUresult cuMemcpyDtoHAsync_v2(void *, CUdeviceptr, size_t, CUhandle);
CUresult cuStreamSynchronize(CUhandle);
CUresult cuGraphInstantiateWithFlags(CUhandle *, CUhandle, unsigned long long);
CUresult cuGraphLaunch(CUhandle, CUhandle);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *, size_t *, CUdeviceptr);
CUresult cuMemRetainAllocationHandle(CUdeviceptr *, void *);
CUresult cuPointerSetAttribute(const void *, int, CUdeviceptr);
CUresult makeroom_simgpu_enqueue_work(CUhandle, uint64_t);
CUdeviceptr torch_allocate(size_t, int);
void torch_free(CUdeviceptr);
void torch_empty_cache(void);
size_t torch_reserved(void);
CUdeviceptr torch_share(CUdeviceptr);
CUdeviceptr torch_handle(CUdeviceptr);
CUresult cuMemGetAllocationPropertiesFromHandle(void *, CUdeviceptr);
CUresult cuMemGetAccess(unsigned long long *, const void *, CUdeviceptr);

enum { MOST = 4096, STREAMS = 4, WRITTEN = 64 };
#define PAGE ((size_t)2 << 20)

static struct block { CUdeviceptr at; size_t bytes; unsigned char tag; } blocks[MOST];
static size_t count, live;
static CUhandle streams[STREAMS];
static uint64_t state;

static void fail(const char *reason) {
    printf("%s\n", reason);
    exit(1);
}

static uint64_t below(uint64_t end) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % end;
}

// The parts of a block that are written: the start of each page, and the end.
static CUdeviceptr part(CUdeviceptr at, size_t bytes, size_t number) {
    CUdeviceptr place = number == 0 ? at : (at / PAGE + number) * PAGE, last = at + bytes - WRITTEN;
    return place < last ? place : last;
}
static size_t parts(CUdeviceptr at, size_t bytes) { return (at + bytes - 1) / PAGE - at / PAGE + 2; }

static void fill(CUdeviceptr at, size_t bytes, unsigned char tag, CUhandle stream) {
    for (size_t i = 0; i < parts(at, bytes); i++) OK(cuMemsetD8Async(part(at, bytes, i), tag, WRITTEN, stream));
}

static void check(CUdeviceptr at, size_t bytes, unsigned char tag, CUhandle stream) {
    for (size_t i = 0; i < parts(at, bytes); i++) {
        unsigned char found[WRITTEN], wanted[WRITTEN];
        OK(cuMemcpyDtoHAsync_v2(found, part(at, bytes, i), WRITTEN, stream));
        OK(cuStreamSynchronize(stream));
        memset(wanted, tag, WRITTEN);
        if (memcmp(found, wanted, WRITTEN) != 0) fail("the contents of a block changed");
    }
}

static int allocate(size_t bytes) {
    CUdeviceptr at = torch_allocate(bytes, 0);
    if (!at || count == MOST) return 0;
    blocks[count] = (struct block){at, bytes, (unsigned char)(1 + below(255))};
    fill(at, bytes, blocks[count].tag, streams[below(STREAMS)]);
    live += bytes;
    count++;
    return 1;
}

static void release(size_t index) {
    struct block gone = blocks[index];
    check(gone.at, gone.bytes, gone.tag, streams[below(STREAMS)]);
    OK(makeroom_simgpu_enqueue_work(streams[below(STREAMS)], below(30000)));
    torch_free(gone.at);
    live -= gone.bytes;
    blocks[index] = blocks[--count];
}

static void churn(size_t steps, size_t most) {
    for (size_t i = 0; i < steps; i++) {
        size_t bytes = below(4) ? (1 + below(80)) * (size_t)524288 + below(4096) * 512 : 64 + below(1 << 20);
        if (below(100) < 58 && live + bytes < most) allocate(bytes);
        else if (count) release(below(count));
        if (below(400) == 0) torch_empty_cache();
    }
}

// A graph fills blocks that are freed before it is replayed: its addresses must stay valid.
static void graph(size_t most) {
    CUhandle captured, executable;
    size_t bytes = 32 << 20;
    OK(cuStreamBeginCapture_v2(streams[0], 0));
    CUdeviceptr first = torch_allocate(bytes, 1);
    fill(first, bytes, 7, streams[0]);
    torch_free(first);
    CUdeviceptr second = torch_allocate(bytes / 2, 1);
    fill(second, bytes / 2, 8, streams[0]);
    OK(cuStreamEndCapture(streams[0], &captured));
    OK(cuGraphInstantiateWithFlags(&executable, captured, 0));
    torch_free(second);
    for (int i = 0; i < 3; i++) {
        // Blocks of other sizes at other addresses, so that all memory that is not kept moves.
        while (live > most / 4) release(below(count));
        churn(200, most);
        OK(cuGraphLaunch(executable, streams[1]));
        check(first + bytes / 2, bytes / 2, 7, streams[2]);
        check(second, bytes / 2, 8, streams[2]);
    }
}

static void share(void) {
    CUdeviceptr at = torch_allocate(50 << 20, 0), start;
    size_t bytes;
    if (!at) return;
    OK(cuMemGetAddressRange_v2(&start, &bytes, at));
    if (start > at || start + bytes <= at || bytes != 20 << 20) fail("not the range of a slot");
    fill(at, 50 << 20, 9, streams[1]);
    OK(cuStreamSynchronize(streams[1]));
    CUdeviceptr other = torch_share(at);
    if (!other) fail("not shared");
    check(other, 50 << 20, 9, streams[2]);
    fill(other, 50 << 20, 10, streams[2]);
    OK(cuStreamSynchronize(streams[2]));
    check(at, 50 << 20, 10, streams[3]);
    torch_free(at);
}

// Memory of other callers is the driver's, also while PyTorch's is paged.
static void own_memory(void) {
    struct { int kind, handles, location, device; void *metadata; char flags[8]; } properties = {1, 1, 1, 0, 0, {0}};
    CUdeviceptr handle, at;
    OK(cuMemCreate(&handle, PAGE, &properties, 0));
    if (handle >> 48) fail("another caller got a token");
    OK(cuMemAddressReserve(&at, PAGE, 0, 0, 0));
    OK(cuMemMap(at, PAGE, 0, handle, 0));
    OK(cuMemUnmap(at, PAGE));
    OK(cuMemRelease(handle));
}

// The thread that drops the last reference frees a block, and may have no context.
static void *free_some(void *unused) {
    for (int i = 0; i < 20 && count; i++) {
        live -= blocks[--count].bytes;
        torch_free(blocks[count].at);
    }
    return unused;
}

// A child of fork has no pages, and waits for no lock.
static void fork_once(void) {
    int status;
    CUdeviceptr at = torch_allocate(1 << 20, 0);
    pid_t child = fork();
    if (child == 0) {
        torch_free(at);
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || status != 0) fail("the child failed");
    torch_free(at);
}

// Properties of a handle, and access to memory, also where no page has any.
static void query(void) {
    struct { int kind, handles, location, device; void *metadata; char flags[8]; } properties = {0};
    struct { int kind, number; } own = {1, 0}, host = {3, 0};
    unsigned long long access = 0, none = 7;
    CUdeviceptr at = torch_allocate(24 << 20, 0), start;
    size_t bytes;
    if (!at) return;
    OK(cuMemGetAllocationPropertiesFromHandle(&properties, torch_handle(at)));
    if (properties.kind != 1 || properties.location != 1 || properties.device != 0) fail("not the properties");
    OK(cuMemGetAddressRange_v2(&start, &bytes, at));
    OK(cuMemGetAccess(&access, &own, start + bytes - 64));
    OK(cuMemGetAccess(&none, &host, at));
    if (access != 3 || none != 0) fail("not the access");
    torch_free(at);
}

// Memory by its handle, and by an attribute that the driver keeps with the handle.
static void name_memory(void) {
    unsigned on = 1;
    CUdeviceptr handle, at = torch_allocate(24 << 20, 0);
    if (!at) return;
    fill(at, 24 << 20, 11, streams[0]);
    OK(cuPointerSetAttribute(&on, 6, at));
    OK(cuMemRetainAllocationHandle(&handle, (void *)at));
    if (handle >> 48) fail("a token was retained");
    OK(cuMemRelease(handle));
    check(at, 24 << 20, 11, streams[1]);
    torch_free(at);
}

// Blocks up to the most live bytes, all at once.
static void fill_up(size_t most) {
    size_t bytes = 24 << 20;
    while (live + bytes <= most) if (!allocate(bytes)) fail("not enough memory");
    for (size_t i = 0; i < count; i++) check(blocks[i].at, blocks[i].bytes, blocks[i].tag, streams[below(STREAMS)]);
}

int main(int number, char **words) {
    CUhandle primary;
    size_t steps = atoi(words[2]), most = (size_t)atoi(words[3]) << 20;
    state = atoi(words[1]);
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    for (int i = 0; i < STREAMS; i++) OK(cuStreamCreate(&streams[i], 1));
    if (getenv("OPENED") && open(getenv("OPENED"), O_RDONLY) < 0) fail("a file was not opened");
    churn(steps, most);
    if (number > 4 && strcmp(words[4], "fill") == 0) {
        fill_up(most);
    } else if (number > 4) {
        pthread_t thread;
        own_memory();
        query();
        name_memory();
        fork_once();
        if (pthread_create(&thread, NULL, free_some, NULL) || pthread_join(thread, NULL)) return 98;
        graph(most);
        share();
        churn(steps, most);
    }
    uint64_t figures[12];
    int (*ask)(int, uint64_t *) = dlsym(RTLD_DEFAULT, "makeroom_pages_figures");
    int is_paged = ask && ask(0, figures) == 0;
    while (count) release(count - 1);
    torch_empty_cache();
    size_t reserved = torch_reserved();
    if (is_paged) {
        printf("live %zu physical %zu host %zu moved %zu waits %zu\n", figures[0], figures[1], figures[3], figures[5], figures[6]);
        ask(0, figures);
        printf("left %zu of %zu mapped\n", figures[2], figures[4]);
    }
    printf("reserved %zu\nthe contents are right\n", number > 4 ? 0 : reserved);
    return 0;
}
