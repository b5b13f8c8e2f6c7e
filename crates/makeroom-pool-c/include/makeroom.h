/* makeroom.h: makeroom's GPU memory pool for C and C++.
 *
 *     makeroom_pool pool;
 *     void *memory;
 *     if (makeroom_pool_create(0, NULL, &pool) != MAKEROOM_OK ||
 *         makeroom_alloc(pool, 1 << 20, stream, &memory) != MAKEROOM_OK)
 *         fprintf(stderr, "%s\n", makeroom_last_error());
 *
 * Link with -lmakeroom_pool. No CUDA library is needed: the driver is loaded at run time. The memory works with the
 * driver API and the runtime API.
 *
 * All functions are thread-safe and never terminate the process. Only makeroom_torch_alloc can throw an exception. Do not
 * call any of them from a stream callback. In a forked child of a process that created a pool, they return
 * MAKEROOM_FORKED, because CUDA does not work after a fork.
 */
#ifndef MAKEROOM_H
#define MAKEROOM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. makeroom_version() returns the version of the library, which works with all headers up to
 * its own version. */
#define MAKEROOM_VERSION 1
unsigned makeroom_version(void);

/* Result of a function. If it is not MAKEROOM_OK, nothing has changed, and makeroom_last_error() returns a message. */
typedef int makeroom_status;
enum {
    MAKEROOM_OK = 0,
    MAKEROOM_OUT_OF_MEMORY = 1,    /* out of memory; makeroom_last_shortage() has the details */
    MAKEROOM_INVALID_ARGUMENT = 2, /* an argument is null or has an invalid value */
    MAKEROOM_NO_SUCH_POOL = 3,     /* the pool does not exist or was destroyed */
    MAKEROOM_WRONG_ADDRESS = 4,    /* not the start of a live block in this pool: a double free or a foreign pointer */
    MAKEROOM_DRIVER = 5,           /* no driver, or a driver call failed for a reason other than memory */
    MAKEROOM_FORKED = 6,           /* the process was forked from the one that created the pool */
    MAKEROOM_FILE = 7,             /* a file could not be written */
    MAKEROOM_INTERNAL = 8          /* a bug in the library */
};

/* A pool. It is a number, not a pointer, so using an invalid one is an error, not a crash. 0 is not a pool. */
typedef uint64_t makeroom_pool;

/* A CUstream or cudaStream_t; NULL is the default stream. */
typedef void *makeroom_stream;

/* Structures start with their size, which the caller sets to sizeof. New fields can be added without recompiling
 * programs. A field that is 0 has its default value. */
typedef struct makeroom_options {
    size_t size;
    uint64_t limit;   /* limit on device memory, in bytes; 0: the device's capacity */
    uint64_t spill;   /* limit on host memory used when the device is full, in bytes; 0: none */
    uint64_t history; /* number of recent events in a snapshot; 0: none */
} makeroom_options;

/* reserved = live + rounding + cached, and pending is part of live. */
typedef struct makeroom_stats {
    size_t size;
    uint64_t live;          /* requested bytes, from the allocation until the free is complete */
    uint64_t pending;       /* the part of live that was freed but is waiting for a stream */
    uint64_t rounding;      /* bytes in blocks beyond their requested sizes */
    uint64_t reserved;      /* taken from the device */
    uint64_t cached;        /* reserved, but neither live nor rounding */
    uint64_t peak_live;     /* peak of live */
    uint64_t peak_reserved; /* peak of reserved */
    uint64_t blocks;        /* number of live blocks */
    uint64_t allocations;   /* successful allocations since the pool was created */
    uint64_t refusals;      /* failed allocations */
    uint64_t spilled;       /* in host memory; not part of live and reserved, which are device memory */
    uint64_t peak_spilled;  /* peak of spilled */
    uint64_t driver_nanoseconds; /* time in driver calls for memory, including waits */
} makeroom_stats;

/* The figures of a failed allocation. */
typedef struct makeroom_shortage {
    size_t size;
    uint64_t requested;    /* requested size */
    uint64_t device_free;  /* free memory of the device; 0 if the driver did not respond */
    uint64_t device_total; /* total memory of the device; 0 if the driver did not respond */
    uint64_t largest;      /* largest block available to this stream without new memory */
    uint64_t live;         /* live memory of the pool */
    uint64_t reserved;     /* device memory reserved by the pool */
    uint64_t limit;        /* limit on reserved; 0: none */
    uint64_t spilled;      /* spilled to host memory */
    uint64_t spill_quota;  /* limit on spilled; 0: spilling is off */
} makeroom_shortage;

/* The message of the last failure on this thread, with a hint. Valid until the next failure on this thread; never NULL. */
const char *makeroom_last_error(void);

/* The figures of the last failure on this thread; MAKEROOM_INVALID_ARGUMENT if memory did not run out. */
makeroom_status makeroom_last_shortage(makeroom_shortage *shortage);

/* Creates a pool on a device, in its primary context, which the CUDA runtime uses too. options may be NULL. At most 1024
 * pools can exist at a time. */
makeroom_status makeroom_pool_create(int device, const makeroom_options *options, makeroom_pool *pool);

/* Waits for the GPU and for other threads' calls on the pool, then releases all its memory, including live blocks, which
 * must not be used afterward. Does nothing if pool is 0. */
makeroom_status makeroom_pool_destroy(makeroom_pool pool);

/* Makes the pool's context current on this thread, for programs that call the driver themselves. */
makeroom_status makeroom_pool_make_current(makeroom_pool pool);

/* Allocates uninitialized memory, aligned to 512 bytes, for work submitted to a stream from now on. A request for 0 bytes
 * counts as 1 byte. On failure, *address is NULL. */
makeroom_status makeroom_alloc(makeroom_pool pool, size_t bytes, makeroom_stream stream, void **address);

/* Frees memory in stream order: work already submitted to the stream may still use it, and later work can reuse it
 * immediately. Freeing NULL does nothing. */
makeroom_status makeroom_free(makeroom_pool pool, void *address, makeroom_stream stream);

/* Records that another stream uses the block too. After its free, the block is not reused until the GPU has finished the
 * work submitted to that stream before the free. */
makeroom_status makeroom_record_stream(makeroom_pool pool, void *address, makeroom_stream stream);

/* Call this before destroying a stream on which memory was freed. */
makeroom_status makeroom_retire_stream(makeroom_pool pool, makeroom_stream stream);

/* The pool's statistics. */
makeroom_status makeroom_pool_stats(makeroom_pool pool, makeroom_stats *stats);

/* Resets the peaks to the current values. */
makeroom_status makeroom_pool_reset_peaks(makeroom_pool pool);

/* Changes the limit; 0 removes it. Memory above the new limit stays until the pool is trimmed. */
makeroom_status makeroom_pool_set_limit(makeroom_pool pool, uint64_t limit);

/* Releases unused memory to the device until at most keep bytes are reserved. given_back receives the number of bytes
 * released; it may be NULL. */
makeroom_status makeroom_pool_trim(makeroom_pool pool, uint64_t keep, uint64_t *given_back);

/* Writes the pool's memory and its recent events in the format of PyTorch's memory snapshots, which PyTorch's viewer
 * (pytorch.org/memory_viz) and `makeroom why` read. Memory spilled to the host is not included. */
makeroom_status makeroom_pool_snapshot(makeroom_pool pool, const char *path);

/* --- PyTorch -------------------------------------------------------------------------------------------------------
 *
 * Functions for torch.cuda.memory.CUDAPluggableAllocator, which takes them by name or by address:
 *
 *     allocator = CUDAPluggableAllocator("libmakeroom_pool.so", "makeroom_torch_alloc", "makeroom_torch_free")
 *     library = ctypes.CDLL("libmakeroom_pool.so")
 *     address = lambda function: ctypes.cast(function, ctypes.c_void_p).value
 *     allocator.allocator().set_record_stream_fn(address(library.makeroom_torch_record_stream))
 *     ...
 *     torch.cuda.memory.change_current_allocator(allocator)
 *
 * Each device has its own pools, created on first use. After a failure, makeroom_last_error() returns the message.
 */

/* PyTorch does not check the result of alloc, so a null pointer would become a tensor. If memory runs out, this function
 * therefore makes PyTorch throw its own C++ exception (in Python, a RuntimeError) with the breakdown as its message. In a
 * program without PyTorch, it returns NULL. */
void *makeroom_torch_alloc(size_t bytes, int device, makeroom_stream stream);
void makeroom_torch_free(void *address, size_t bytes, int device, makeroom_stream stream);

/* Sets the options of all devices' pools; call it before the first tensor is allocated. The limit applies to each device. */
makeroom_status makeroom_torch_configure(const makeroom_options *options);

/* Identifies a PyTorch memory pool (captured graphs, torch.cuda.MemPool): a std::pair of two numbers in C++. */
typedef struct makeroom_mempool_id {
    unsigned long long first;
    unsigned long long second;
} makeroom_mempool_id;

void makeroom_torch_init(int device_count);                             /* set_init_fn */
void makeroom_torch_reset(void);                                        /* set_reset_fn: empty_cache() */
void makeroom_torch_memory_fraction(double fraction, int device);       /* set_memory_fraction_fn; 1: no limit */
void *makeroom_torch_base_alloc(void *address, size_t *bytes);          /* set_base_alloc_fn */
void makeroom_torch_record_stream(void *address, makeroom_stream stream); /* set_record_stream_fn */

/* set_begin_allocate_to_pool, set_end_allocate_to_pool_fn, set_release_pool. Each memory pool has its own memory,
 * which stays mapped until the pool has been released as many times as it was begun. filter, the address of a C++
 * object, is not used: the pool serves the thread that called begin, and streams that are being captured. */
void makeroom_torch_begin_pool(int device, makeroom_mempool_id id, void *filter);
void makeroom_torch_end_pool(int device, makeroom_mempool_id id);
void makeroom_torch_release_pool(int device, makeroom_mempool_id id);

/* Statistics that PyTorch does not provide for pluggable allocators: sums over all pools of a device. Peaks of different
 * pools may have occurred at different times. */
makeroom_status makeroom_torch_stats(int device, makeroom_stats *stats);
makeroom_status makeroom_torch_reset_peaks(int device);
makeroom_status makeroom_torch_snapshot(const char *path); /* all devices */

#ifdef __cplusplus
}
#endif

#endif
