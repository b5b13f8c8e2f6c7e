// Trains, as far as memory is concerned: ./train KIND BATCH
//   once     a few steps, then ends               plain    the same, but goes on until it is ended
//   worker   plain, in a process of its own       quit     takes memory, then dies of something else
//   deaf     plain, whatever the batch            pile     as many pieces of one size, then ends
//   ranks    four ranks on a GPU each, as torchrun starts them; rank 2 has half a batch more than the others
//   greedy   plain, but first asks for more than any card has, and does without
#include "cuda.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LAYERS = 12 };
static const size_t weights = 9 << 20;

static size_t activation(size_t batch, int layer) { return batch * (1300000 + 77777 * layer) + 24; }

static Pointer take_or_say(size_t bytes) {
    Pointer pointer;
    if (cuMemAlloc_v2(&pointer, bytes)) {
        fprintf(stderr, "RuntimeError: CUDA out of memory\n");
        exit(98);
    }
    return pointer;
}

static void step(size_t batch, int is_first) {
    Pointer kept[LAYERS], gradients[LAYERS];
    for (int layer = 0; layer < LAYERS; layer++) {
        Pointer temporary = take_or_say(2 * activation(batch, layer));
        kept[layer] = take_or_say(activation(batch, layer));
        cuMemFree_v2(temporary);
    }
    for (int layer = LAYERS - 1; layer >= 0; layer--) {
        gradients[layer] = take_or_say(weights);
        cuMemFree_v2(kept[layer]);
    }
    if (is_first)
        for (int layer = 0; layer < 2 * LAYERS; layer++) take_or_say(weights);
    for (int layer = 0; layer < LAYERS; layer++) cuMemFree_v2(gradients[layer]);
}

static void train_on(size_t batch, int steps) {
    for (int layer = 0; layer < LAYERS; layer++) take_or_say(weights);
    for (int number = 0; steps == 0 || number < steps; number++) {
        step(batch, number == 0);
        if (steps == 0) usleep(2000);
    }
}

static void train(size_t batch, int steps) {
    begin();
    train_on(batch, steps);
}

int main(int count, char **words) {
    size_t batch = count > 2 ? strtoul(words[2], NULL, 10) : 1;
    const char *kind = words[1];
    if (!strcmp(kind, "once")) train(batch, 3);
    if (!strcmp(kind, "plain")) train(batch, 0);
    if (!strcmp(kind, "deaf")) train(3, 0);
    if (!strcmp(kind, "greedy")) {
        Pointer pointer;
        begin();
        if (!cuMemAlloc_v2(&pointer, (size_t)1 << 40)) return 4;
        train(batch, 0);
    }
    if (!strcmp(kind, "pile")) {
        begin();
        for (size_t piece = 0; piece < batch; piece++) take_or_say(weights);
    }
    if (!strcmp(kind, "worker")) {
        if (fork() == 0) train(batch, 0);
        for (;;) pause();
    }
    if (!strcmp(kind, "ranks")) {
        for (int rank = 0; rank < 4; rank++) {
            if (fork()) continue;
            char number[16];
            sprintf(number, "%d", rank);
            setenv("RANK", number, 1);
            setenv("WORLD_SIZE", "4", 1);
            sprintf(number, "%zu", rank == 2 ? batch + batch / 2 : batch);
            execl("/proc/self/exe", words[0], "rank", number, NULL);
        }
        for (;;) pause();
    }
    if (!strcmp(kind, "rank")) {
        Handle context;
        if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, atoi(getenv("RANK"))) || cuCtxSetCurrent(context)) return 5;
        train_on(batch, 0);
    }
    if (!strcmp(kind, "quit")) {
        train(batch, 1);
        fprintf(stderr, "ValueError: the labels are missing\n");
        return 3;
    }
    return 0;
}
