/* Everything a pool can do, from C. */
#include "check.h"

static void blocks_hold_what_is_written(makeroom_pool pool) {
    int (*to_device)(uint64_t, const void *, size_t) = driver_function("cuMemcpyHtoD_v2");
    int (*to_host)(void *, uint64_t, size_t) = driver_function("cuMemcpyDtoH_v2");
    OK(makeroom_pool_make_current(pool));
    void *first, *second;
    OK(makeroom_alloc(pool, 1000, NULL, &first));
    OK(makeroom_alloc(pool, 5 * MIB, NULL, &second));
    CHECK((uintptr_t)first % 512 == 0 && (uintptr_t)second % 512 == 0 && first != second);
    char out[1000], in[1000];
    memset(out, 7, sizeof out);
    CHECK(to_device((uint64_t)first, out, sizeof out) == 0);
    CHECK(to_host(in, (uint64_t)first, sizeof in) == 0);
    CHECK(memcmp(in, out, sizeof in) == 0);
    makeroom_stats stats = stats_of(pool);
    CHECK(stats.live == 1000 + 5 * MIB);
    CHECK(stats.reserved >= stats.live);
    OK(makeroom_free(pool, first, NULL));
    OK(makeroom_free(pool, second, NULL));
    CHECK(stats_of(pool).live == 0);
}

static void streams_are_recorded_and_retired(makeroom_pool pool) {
    int (*create)(void **, unsigned) = driver_function("cuStreamCreate");
    int (*destroy)(void *) = driver_function("cuStreamDestroy_v2");
    void *stream, *block;
    CHECK(create(&stream, 1) == 0);
    OK(makeroom_alloc(pool, 3 * MIB, NULL, &block));
    OK(makeroom_record_stream(pool, block, stream));
    OK(makeroom_free(pool, block, NULL));
    OK(makeroom_alloc(pool, 3 * MIB, stream, &block));
    OK(makeroom_free(pool, block, stream));
    OK(makeroom_retire_stream(pool, stream));
    CHECK(destroy(stream) == 0);
    OK(makeroom_pool_trim(pool, 0, NULL));
    CHECK(stats_of(pool).live == 0);
}

static void a_limit_refuses_with_figures(makeroom_pool pool) {
    OK(makeroom_pool_trim(pool, 0, NULL));
    OK(makeroom_pool_set_limit(pool, 64 * MIB));
    void *held, *refused = &held;
    OK(makeroom_alloc(pool, 48 * MIB, NULL, &held));
    CHECK(makeroom_alloc(pool, 32 * MIB, NULL, &refused) == MAKEROOM_OUT_OF_MEMORY);
    CHECK(refused == NULL);
    CHECK(strstr(makeroom_last_error(), "32.00 MiB") && strstr(makeroom_last_error(), "hint: "));
    makeroom_shortage shortage = {.size = sizeof shortage};
    OK(makeroom_last_shortage(&shortage));
    CHECK(shortage.requested == 32 * MIB && shortage.limit == 64 * MIB && shortage.live == 48 * MIB);
    CHECK(shortage.reserved >= shortage.live && shortage.reserved <= shortage.limit);
    CHECK(shortage.device_total == 1024 * MIB && shortage.device_free < shortage.device_total);
    CHECK(shortage.largest < shortage.requested);
    OK(makeroom_pool_set_limit(pool, 0));
    OK(makeroom_alloc(pool, 32 * MIB, NULL, &refused));
    OK(makeroom_free(pool, refused, NULL));
    OK(makeroom_free(pool, held, NULL));
}

static void peaks_begin_anew_and_caches_go_back(makeroom_pool pool) {
    void *block;
    OK(makeroom_alloc(pool, 100 * MIB, NULL, &block));
    OK(makeroom_free(pool, block, NULL));
    CHECK(stats_of(pool).peak_live >= 100 * MIB);
    OK(makeroom_pool_reset_peaks(pool));
    CHECK(stats_of(pool).peak_live < 100 * MIB);
    uint64_t given_back = 1;
    OK(makeroom_pool_trim(pool, 0, &given_back));
    CHECK(stats_of(pool).reserved == 0);
}

static void what_does_not_fit_is_spilled(void) {
    makeroom_pool pool;
    makeroom_options options = {.size = sizeof options, .limit = 64 * MIB, .spill = 100 * MIB};
    OK(makeroom_pool_create(0, &options, &pool));
    void *near, *far, *beyond;
    OK(makeroom_alloc(pool, 48 * MIB, NULL, &near));
    OK(makeroom_alloc(pool, 80 * MIB, NULL, &far));
    CHECK(stats_of(pool).spilled == 80 * MIB && stats_of(pool).live == 48 * MIB);
    CHECK(makeroom_alloc(pool, 80 * MIB, NULL, &beyond) == MAKEROOM_OUT_OF_MEMORY);
    makeroom_shortage shortage = {.size = sizeof shortage};
    OK(makeroom_last_shortage(&shortage));
    CHECK(shortage.spilled == 80 * MIB && shortage.spill_quota == 100 * MIB);
    OK(makeroom_free(pool, far, NULL));
    OK(makeroom_free(pool, near, NULL));
    CHECK(stats_of(pool).spilled == 0 && stats_of(pool).peak_spilled == 80 * MIB);
    OK(makeroom_pool_destroy(pool));
}

int main(int count, char **arguments) {
    CHECK(count == 2 && makeroom_version() == MAKEROOM_VERSION);
    makeroom_pool pool;
    makeroom_options options = {.size = sizeof options, .history = 1000};
    OK(makeroom_pool_create(0, &options, &pool));
    blocks_hold_what_is_written(pool);
    streams_are_recorded_and_retired(pool);
    a_limit_refuses_with_figures(pool);
    peaks_begin_anew_and_caches_go_back(pool);
    what_does_not_fit_is_spilled();
    void *kept;
    OK(makeroom_alloc(pool, 12345, NULL, &kept));
    OK(makeroom_pool_snapshot(pool, arguments[1]));
    OK(makeroom_pool_destroy(pool));
    CHECK(makeroom_free(pool, kept, NULL) == MAKEROOM_NO_SUCH_POOL);
    puts("done");
    return 0;
}
