// A thread's destructors run CUDA calls while the thread ends, after its thread-local variables are gone.
#include "cuda.h"
#include <pthread.h>
static pthread_key_t key;
static CUhandle context;
static void free_block(void *pointer) { OK(cuMemFree_v2((CUdeviceptr)pointer)); }
static void *work(void *unused) {
    CUdeviceptr pointer;
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&pointer, 1 << 10));
    pthread_setspecific(key, (void *)pointer);
    return NULL;
}
int main(void) {
    context = begin();
    pthread_key_create(&key, free_block);
    for (int i = 0; i < 10; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, work, NULL);
        pthread_join(thread, NULL);
    }
    printf("done\n");
    return 0;
}
