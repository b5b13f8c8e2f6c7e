/* Arguments that are wrong, and a child that was forked: every one is answered. */
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

#define WRONG(call) CHECK((call) == MAKEROOM_INVALID_ARGUMENT)
#define NO_POOL(call) CHECK((call) == MAKEROOM_NO_SUCH_POOL)

static void numbers_of_no_pool(makeroom_pool pool) {
    void *block;
    makeroom_stats stats = {.size = sizeof stats};
    NO_POOL(makeroom_alloc(pool, 1, NULL, &block));
    NO_POOL(makeroom_free(pool, &block, NULL));
    NO_POOL(makeroom_record_stream(pool, &block, NULL));
    NO_POOL(makeroom_retire_stream(pool, NULL));
    NO_POOL(makeroom_pool_stats(pool, &stats));
    NO_POOL(makeroom_pool_reset_peaks(pool));
    NO_POOL(makeroom_pool_set_limit(pool, 1));
    NO_POOL(makeroom_pool_trim(pool, 0, NULL));
    NO_POOL(makeroom_pool_snapshot(pool, "snapshot.pickle"));
    NO_POOL(makeroom_pool_make_current(pool));
    if (pool != 0)
        NO_POOL(makeroom_pool_destroy(pool));
}

static void null_pointers(makeroom_pool pool) {
    WRONG(makeroom_pool_create(0, NULL, NULL));
    WRONG(makeroom_alloc(pool, 1, NULL, NULL));
    WRONG(makeroom_pool_stats(pool, NULL));
    WRONG(makeroom_pool_snapshot(pool, NULL));
    WRONG(makeroom_last_shortage(NULL));
    OK(makeroom_free(pool, NULL, NULL));
    OK(makeroom_pool_destroy(0));
}

static void sizes_that_were_not_set(makeroom_pool pool) {
    makeroom_stats stats = {0};
    makeroom_pool other;
    makeroom_options options = {.size = 123456789};
    WRONG(makeroom_pool_stats(pool, &stats));
    CHECK(strstr(makeroom_last_error(), "sizeof"));
    WRONG(makeroom_pool_create(0, &options, &other));
    CHECK(other == 0);
    struct { makeroom_options known; uint64_t later; } newer = {{.size = sizeof newer}, 0};
    OK(makeroom_pool_create(0, &newer.known, &other));
    OK(makeroom_pool_destroy(other));
    newer.later = 1;
    WRONG(makeroom_pool_create(0, &newer.known, &other));
    struct { size_t size; uint64_t live; uint64_t behind; } older = {.size = 16, .behind = 42};
    OK(makeroom_pool_stats(pool, (makeroom_stats *)&older));
    CHECK(older.behind == 42);
}

static void addresses_of_nobody(makeroom_pool pool) {
    void *block;
    OK(makeroom_alloc(pool, 1000, NULL, &block));
    CHECK(makeroom_free(pool, (char *)block + 1, NULL) == MAKEROOM_WRONG_ADDRESS);
    CHECK(makeroom_free(pool, &block, NULL) == MAKEROOM_WRONG_ADDRESS);
    CHECK(makeroom_record_stream(pool, &block, NULL) == MAKEROOM_WRONG_ADDRESS);
    OK(makeroom_free(pool, block, NULL));
    CHECK(makeroom_free(pool, block, NULL) == MAKEROOM_WRONG_ADDRESS);
    CHECK(strstr(makeroom_last_error(), "already freed") != NULL);
    CHECK(makeroom_alloc(pool, SIZE_MAX, NULL, &block) == MAKEROOM_OUT_OF_MEMORY);
    CHECK(makeroom_alloc(pool, (size_t)1 << 40, NULL, &block) == MAKEROOM_OUT_OF_MEMORY);
}

static void devices_and_files_that_are_not_there(makeroom_pool pool) {
    makeroom_pool other;
    CHECK(makeroom_pool_create(99, NULL, &other) == MAKEROOM_DRIVER && other == 0);
    CHECK(makeroom_pool_create(-1, NULL, &other) == MAKEROOM_DRIVER);
    CHECK(makeroom_pool_snapshot(pool, "no/such/folder/snapshot.pickle") == MAKEROOM_FILE);
    CHECK(strstr(makeroom_last_error(), "no/such/folder"));
}

static void pytorchs_functions(void) {
    makeroom_mempool_id id = {1, 2};
    makeroom_stats stats = {.size = sizeof stats};
    size_t bytes = 77;
    CHECK(makeroom_torch_alloc(1, -1, NULL) == NULL);
    CHECK(makeroom_torch_alloc(1, 1 << 30, NULL) == NULL);
    makeroom_torch_free(NULL, 1, 0, NULL);
    makeroom_torch_free(&bytes, 1, 0, NULL);
    makeroom_torch_free(&bytes, 1, -5, NULL);
    makeroom_torch_init(-1);
    makeroom_torch_memory_fraction(-1.0, 0);
    makeroom_torch_memory_fraction(0.0 / 0.0, 0);
    makeroom_torch_record_stream(&bytes, NULL);
    CHECK(makeroom_torch_base_alloc(&bytes, &bytes) == NULL && bytes == 77);
    CHECK(makeroom_torch_base_alloc(NULL, NULL) == NULL);
    makeroom_torch_end_pool(0, id);
    makeroom_torch_release_pool(0, id);
    makeroom_torch_begin_pool(-1, id, NULL);
    WRONG(makeroom_torch_stats(-1, &stats));
    WRONG(makeroom_torch_stats(0, NULL));
    WRONG(makeroom_torch_snapshot(NULL));
    WRONG(makeroom_torch_configure(NULL));
}

static void a_forked_child(makeroom_pool pool) {
    pid_t child = fork();
    if (child == 0) {
        void *block;
        makeroom_pool other;
        int all = makeroom_alloc(pool, 1, NULL, &block) == MAKEROOM_FORKED &&
                  makeroom_pool_create(0, NULL, &other) == MAKEROOM_FORKED &&
                  makeroom_pool_destroy(pool) == MAKEROOM_FORKED && makeroom_torch_alloc(1, 0, NULL) == NULL;
        _exit(all ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    void *block;
    OK(makeroom_alloc(pool, 1, NULL, &block));
    OK(makeroom_free(pool, block, NULL));
}

int main(void) {
    CHECK(strcmp(makeroom_last_error(), "") == 0);
    makeroom_shortage shortage = {.size = sizeof shortage};
    WRONG(makeroom_last_shortage(&shortage));
    makeroom_pool pool, gone;
    OK(makeroom_pool_create(0, NULL, &pool));
    OK(makeroom_pool_create(0, NULL, &gone));
    OK(makeroom_pool_destroy(gone));
    numbers_of_no_pool(0);
    numbers_of_no_pool(gone);
    numbers_of_no_pool(UINT64_MAX);
    null_pointers(pool);
    sizes_that_were_not_set(pool);
    addresses_of_nobody(pool);
    devices_and_files_that_are_not_there(pool);
    pytorchs_functions();
    a_forked_child(pool);
    OK(makeroom_pool_destroy(pool));
    puts("done");
    return 0;
}
