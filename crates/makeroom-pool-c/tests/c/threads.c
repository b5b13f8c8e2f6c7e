/* Many threads, one pool, which one of them destroys under the others' hands. */
#include "check.h"
#include <pthread.h>

static makeroom_pool shared;

static void *work(void *number) {
    void *blocks[16] = {0};
    for (unsigned i = 0; i < 2000; i++) {
        unsigned place = (i * 7 + (unsigned)(uintptr_t)number) % 16;
        if (makeroom_free(shared, blocks[place], NULL) == MAKEROOM_NO_SUCH_POOL)
            return NULL;
        makeroom_status status = makeroom_alloc(shared, 512 + i * 13, NULL, &blocks[place]);
        if (status == MAKEROOM_NO_SUCH_POOL)
            return NULL;
        OK(status);
    }
    for (unsigned place = 0; place < 16; place++)
        makeroom_free(shared, blocks[place], NULL);
    return NULL;
}

int main(void) {
    pthread_t threads[8];
    for (int is_destroyed = 0; is_destroyed < 2; is_destroyed++) {
        OK(makeroom_pool_create(0, NULL, &shared));
        for (uintptr_t i = 0; i < 8; i++)
            CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
        if (is_destroyed)
            OK(makeroom_pool_destroy(shared));
        for (int i = 0; i < 8; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
        if (!is_destroyed) {
            CHECK(stats_of(shared).live == 0);
            OK(makeroom_pool_destroy(shared));
        }
    }
    puts("done");
    return 0;
}
