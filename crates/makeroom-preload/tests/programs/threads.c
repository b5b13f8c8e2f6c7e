// 64 threads at once, then a thousand one after the other that end.
#include "cuda.h"
#include <pthread.h>
static CUhandle context;
static void *many(void *unused) {
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < 500; i++) round_trip(512);
    return NULL;
}
static void *one(void *unused) {
    OK(cuCtxSetCurrent(context));
    round_trip(1024);
    return NULL;
}
int main(void) {
    context = begin();
    pthread_t threads[64];
    for (int i = 0; i < 64; i++) pthread_create(&threads[i], NULL, many, NULL);
    for (int i = 0; i < 64; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 1000; i++) {
        pthread_create(&threads[0], NULL, one, NULL);
        pthread_join(threads[0], NULL);
    }
    printf("done\n");
    return 0;
}
