/* 64 threads allocate, fill, copy and free at once, each with its own bytes; in the end everything is back. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void *driver, *context;
#define CALL(name, ...) (((int (*)())dlsym(driver, #name))(__VA_ARGS__))

static void *work(void *argument) {
    unsigned char mine = (unsigned char)(long)argument, read[3000]; unsigned long address; long wrong = 0; int round, i;
    CALL(cuCtxSetCurrent, context);
    for (round = 0; round < 200; round++) {
        unsigned long bytes = 3000 + (round * 7919UL * mine) % 4000000;
        if (CALL(cuMemAlloc_v2, &address, bytes)) { wrong++; continue; }
        wrong += CALL(cuMemsetD8_v2, address + bytes - 3000, mine, 3000UL) != 0;
        wrong += CALL(cuMemcpyDtoH_v2, read, address + bytes - 3000, 3000UL) != 0;
        for (i = 0; i < 3000; i++) wrong += read[i] != mine;
        wrong += CALL(cuMemFree_v2, address) != 0;
    }
    return (void *)wrong;
}

int main(void) {
    pthread_t threads[64]; long i, wrong = 0; void *result; unsigned long before, after, total;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    CALL(cuInit, 0); CALL(cuCtxCreate_v2, &context, 0, 0);
    CALL(cuMemGetInfo_v2, &before, &total);
    for (i = 0; i < 64; i++) pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (i = 0; i < 64; i++) { pthread_join(threads[i], &result); wrong += (long)result; }
    CALL(cuMemGetInfo_v2, &after, &total);
    printf("wrong %ld lost %ld\n", wrong, (long)(before - after));
    return 0;
}
