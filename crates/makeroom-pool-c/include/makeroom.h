/* makeroom.h: makeroom's pool of GPU memory for C and C++.
 *
 *     makeroom_pool pool;
 *     void *memory;
 *     if (makeroom_pool_create(0, NULL, &pool) != MAKEROOM_OK ||
 *         makeroom_alloc(pool, 1 << 20, stream, &memory) != MAKEROOM_OK)
 *         fprintf(stderr, "%s\n", makeroom_last_error());
 *
 * Link with -lmakeroom_pool (and with nothing of CUDA's: the driver is found at run time). The memory is reached by
 * kernels and copies of both APIs, the driver's and the runtime's.
 *
 * Every function may be called from every thread. None lets an exception out, with one exception that is described
 * there (makeroom_torch_alloc), none ends the process, and none may be called from a callback of a stream.
 * A forked child of a process that has made a pool gets MAKEROOM_FORKED: CUDA does not follow a fork.
 */
#ifndef MAKEROOM_H
#define MAKEROOM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. makeroom_version() answers the library's: a library is good for all headers up to its
 * own version. */
#define MAKEROOM_VERSION 1
unsigned makeroom_version(void);

/* What functions answer. Everything but MAKEROOM_OK has changed nothing, and makeroom_last_error() says more. */
typedef int makeroom_status;
enum {
    MAKEROOM_OK = 0,
    MAKEROOM_OUT_OF_MEMORY = 1,    /* no memory is left; makeroom_last_shortage() has the account */
    MAKEROOM_INVALID_ARGUMENT = 2, /* an argument is null, or no value that the function knows */
    MAKEROOM_NO_SUCH_POOL = 3,     /* the number is no pool's, or that of a destroyed one */
    MAKEROOM_WRONG_ADDRESS = 4,    /* not in use here: freed before, inside of a block, or somebody else's */
    MAKEROOM_DRIVER = 5,           /* there is no driver, or it refused something other than memory */
    MAKEROOM_FORKED = 6,           /* the process was forked from the one that made the pool */
    MAKEROOM_FILE = 7,             /* a file could not be written */
    MAKEROOM_INTERNAL = 8          /* a mistake inside of the library */
};

/* A pool: a number, not a pointer, so a wrong one is an answer and not a crash. 0 is no pool. */
typedef uint64_t makeroom_pool;

/* A CUstream or cudaStream_t; NULL is the default stream. */
typedef void *makeroom_stream;

/* Structures begin with their size, which the caller sets to sizeof: they may grow, and programs need not be compiled
 * again. A field that is 0 is left at its default. */
typedef struct makeroom_options {
    size_t size;
    uint64_t limit;   /* the most bytes taken from the device; 0: what it gives */
    uint64_t spill;   /* the most bytes of host memory for what does not fit on the device; 0: none */
    uint64_t history; /* how many of the last events a snapshot shows; 0: none */
} makeroom_options;

/* reserved = live + rounding + cached, and pending is a part of live. */
typedef struct makeroom_stats {
    size_t size;
    uint64_t live;          /* what was asked for, from the allocation until its free is complete */
    uint64_t pending;       /* the part of it that is freed and waits for a stream */
    uint64_t rounding;      /* what blocks hold beyond that */
    uint64_t reserved;      /* what was taken from the device */
    uint64_t cached;        /* what is reserved and neither live nor rounding */
    uint64_t peak_live;     /* the most that was live at once */
    uint64_t peak_reserved; /* the most that was reserved at once */
    uint64_t blocks;        /* how many blocks are live */
    uint64_t allocations;   /* served, since the pool was made */
    uint64_t refusals;      /* not served */
    uint64_t spilled;       /* what lies in host memory, beside live and reserved, which are the device's */
    uint64_t peak_spilled;  /* the most that lay there at once */
    uint64_t driver_nanoseconds; /* spent in driver calls for memory, waiting included */
} makeroom_stats;

/* Why an allocation was refused, in figures. */
typedef struct makeroom_shortage {
    size_t size;
    uint64_t requested;    /* what was asked for */
    uint64_t device_free;  /* what nobody holds on the device; 0 where it did not answer */
    uint64_t device_total; /* all of the device's memory; 0 where it did not answer */
    uint64_t largest;      /* the most that this stream could have had without new memory */
    uint64_t live;         /* what is in use of the pool */
    uint64_t reserved;     /* what the pool has taken from the device */
    uint64_t limit;        /* the most that it may take; 0: no limit */
    uint64_t spilled;      /* what lies in host memory */
    uint64_t spill_quota;  /* the most that may lie there; 0: nothing is spilled */
} makeroom_shortage;

/* What failed last on this thread, in words, with a hint. Valid until the next failure on this thread; never NULL. */
const char *makeroom_last_error(void);

/* Its figures, if memory ran out; MAKEROOM_INVALID_ARGUMENT if the last failure was another. */
makeroom_status makeroom_last_shortage(makeroom_shortage *shortage);

/* Makes a pool on a device, in its primary context, which the CUDA runtime uses too. options may be NULL.
 * There may be 1024 pools at once. */
makeroom_status makeroom_pool_create(int device, const makeroom_options *options, makeroom_pool *pool);

/* Waits for the GPU and for other threads' calls on the pool, and gives everything back to the device, blocks in use as well:
 * none may be used afterwards.
 * 0 is no pool and nothing happens. */
makeroom_status makeroom_pool_destroy(makeroom_pool pool);

/* Makes the pool's context current on this thread, for programs that call the driver themselves. */
makeroom_status makeroom_pool_make_current(makeroom_pool pool);

/* Hands out memory at a multiple of 512, for use on a stream: work that is submitted to it from now on. What lies
 * in it is whatever was there before. 0 bytes are served as one. *address is NULL where it failed. */
makeroom_status makeroom_alloc(makeroom_pool pool, size_t bytes, makeroom_stream stream, void **address);

/* Takes memory back in the order of a stream: what was submitted to it before may still use the memory, and what comes
 * after may have it at once. Freeing NULL does nothing. */
makeroom_status makeroom_free(makeroom_pool pool, void *address, makeroom_stream stream);

/* Another stream uses the block too: after its free it waits until that stream has passed what it was given. */
makeroom_status makeroom_record_stream(makeroom_pool pool, void *address, makeroom_stream stream);

/* Say this before you destroy a stream that memory was freed on. */
makeroom_status makeroom_retire_stream(makeroom_pool pool, makeroom_stream stream);

/* The pool in figures. */
makeroom_status makeroom_pool_stats(makeroom_pool pool, makeroom_stats *stats);

/* Begins the peaks anew from what is there now. */
makeroom_status makeroom_pool_reset_peaks(makeroom_pool pool);

/* Changes the limit; 0 is none. What is above it already stays until it is trimmed. */
makeroom_status makeroom_pool_set_limit(makeroom_pool pool, uint64_t limit);

/* Gives unused memory back to the device until at most keep bytes are reserved. given_back, how many bytes went back,
 * may be NULL. */
makeroom_status makeroom_pool_trim(makeroom_pool pool, uint64_t keep, uint64_t *given_back);

/* Writes the pool's memory and its last events in the format of PyTorch's memory snapshots, which its viewer
 * (pytorch.org/memory_viz) and `makeroom why` read. What was spilled to host memory is not in it. */
makeroom_status makeroom_pool_snapshot(makeroom_pool pool, const char *path);

/* --- PyTorch -------------------------------------------------------------------------------------------------------
 *
 * What torch.cuda.memory.CUDAPluggableAllocator takes, by name or by address:
 *
 *     allocator = CUDAPluggableAllocator("libmakeroom_pool.so", "makeroom_torch_alloc", "makeroom_torch_free")
 *     library = ctypes.CDLL("libmakeroom_pool.so")
 *     address = lambda function: ctypes.cast(function, ctypes.c_void_p).value
 *     allocator.allocator().set_record_stream_fn(address(library.makeroom_torch_record_stream))
 *     ...
 *     torch.cuda.memory.change_current_allocator(allocator)
 *
 * Each device has its pools, made when it is first used. A failure is the last error of its thread.
 */

/* PyTorch does not look at what alloc returns, so a null pointer would become a tensor. Where there is no memory this
 * function therefore lets PyTorch throw its own C++ exception, a RuntimeError in Python, with the account as its text.
 * Called from a program without PyTorch it returns NULL. */
void *makeroom_torch_alloc(size_t bytes, int device, makeroom_stream stream);
void makeroom_torch_free(void *address, size_t bytes, int device, makeroom_stream stream);

/* Options of every device's pools, to be set before the first tensor. The limit is for each device. */
makeroom_status makeroom_torch_configure(const makeroom_options *options);

/* A memory pool of PyTorch's, for captured graphs and torch.cuda.MemPool: std::pair of two numbers in C++. */
typedef struct makeroom_mempool_id {
    unsigned long long first;
    unsigned long long second;
} makeroom_mempool_id;

void makeroom_torch_init(int device_count);                             /* set_init_fn */
void makeroom_torch_reset(void);                                        /* set_reset_fn: empty_cache() */
void makeroom_torch_memory_fraction(double fraction, int device);       /* set_memory_fraction_fn; 1: no limit */
void *makeroom_torch_base_alloc(void *address, size_t *bytes);          /* set_base_alloc_fn */
void makeroom_torch_record_stream(void *address, makeroom_stream stream); /* set_record_stream_fn */

/* set_begin_allocate_to_pool, set_end_allocate_to_pool_fn, set_release_pool. Each memory pool has memory of its own,
 * which stays where it is until the pool is released as often as it was begun. filter is the address of a C++ object
 * and is not used: memory comes from the pool for the thread that began, and for streams that are being captured. */
void makeroom_torch_begin_pool(int device, makeroom_mempool_id id, void *filter);
void makeroom_torch_end_pool(int device, makeroom_mempool_id id);
void makeroom_torch_release_pool(int device, makeroom_mempool_id id);

/* What PyTorch itself cannot tell of a pluggable allocator. Figures are those of all pools of a device, added up: the
 * peaks of several pools need not have been at one moment. */
makeroom_status makeroom_torch_stats(int device, makeroom_stats *stats);
makeroom_status makeroom_torch_reset_peaks(int device);
makeroom_status makeroom_torch_snapshot(const char *path); /* all devices */

#ifdef __cplusplus
}
#endif

#endif
