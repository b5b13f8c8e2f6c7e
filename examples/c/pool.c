/* A pool of GPU memory from C: a loop of buffers whose sizes change, copies through them, an account at the end.
 *
 *     cargo build --release -p makeroom-pool-c
 *     cc examples/c/pool.c -I crates/makeroom-pool-c/include -L target/release -lmakeroom_pool -ldl -o pool
 *     LD_LIBRARY_PATH=target/release ./pool
 */
#include <dlfcn.h>
#include <makeroom.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 50
#define BUFFERS 8
#define MIB ((size_t)1 << 20)

static void check(makeroom_status status) {
    if (status != MAKEROOM_OK) {
        fprintf(stderr, "%s\n", makeroom_last_error());
        exit(1);
    }
}

/* The driver's copies, so that the example needs no CUDA toolkit to build. */
typedef int copy_to_device(uint64_t to, const void *from, size_t bytes);
typedef int copy_to_host(void *to, uint64_t from, size_t bytes);

static int check_copies(void *buffer, size_t bytes, unsigned char value) {
    static copy_to_device *put;
    static copy_to_host *get;
    if (put == NULL) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        put = (copy_to_device *)dlsym(driver, "cuMemcpyHtoD_v2");
        get = (copy_to_host *)dlsym(driver, "cuMemcpyDtoH_v2");
    }
    unsigned char out[4096], in[4096] = {0};
    memset(out, value, sizeof out);
    /* The last bytes of the block: they are there, too. */
    uint64_t end = (uint64_t)buffer + bytes - sizeof out;
    return put(end, out, sizeof out) == 0 && get(in, end, sizeof in) == 0 && memcmp(out, in, sizeof out) == 0;
}

int main(int count, char **arguments) {
    const char *snapshot = count > 1 ? arguments[1] : "pool.pickle";
    makeroom_pool pool;
    makeroom_options options = {.size = sizeof options, .limit = 512 * MIB, .history = 10000};
    check(makeroom_pool_create(0, &options, &pool));
    check(makeroom_pool_make_current(pool));

    for (int step = 0; step < STEPS; step++) {
        void *buffers[BUFFERS];
        for (int i = 0; i < BUFFERS; i++) {
            size_t bytes = (1 + (size_t)(step * 7 + i * 11) % 40) * MIB;
            check(makeroom_alloc(pool, bytes, NULL, &buffers[i]));
            if (!check_copies(buffers[i], bytes, (unsigned char)(step + i))) {
                fprintf(stderr, "step %d: what was copied in did not come out\n", step);
                return 1;
            }
        }
        for (int i = 0; i < BUFFERS; i++)
            check(makeroom_free(pool, buffers[i], NULL));
    }

    /* What does not fit is an error with an account, not a crash. */
    void *buffer;
    if (makeroom_alloc(pool, 600 * MIB, NULL, &buffer) == MAKEROOM_OUT_OF_MEMORY) {
        makeroom_shortage shortage = {.size = sizeof shortage};
        check(makeroom_last_shortage(&shortage));
        printf("600 MiB did not fit: %zu MiB reserved, limit %zu MiB\n", (size_t)shortage.reserved / MIB,
               (size_t)shortage.limit / MIB);
    }

    makeroom_stats stats = {.size = sizeof stats};
    check(makeroom_pool_stats(pool, &stats));
    printf("%zu allocations, at most %zu MiB live and %zu MiB reserved\n", (size_t)stats.allocations,
           (size_t)stats.peak_live / MIB, (size_t)stats.peak_reserved / MIB);
    check(makeroom_pool_snapshot(pool, snapshot));
    printf("makeroom why %s\n", snapshot);
    check(makeroom_pool_destroy(pool));
    return 0;
}
