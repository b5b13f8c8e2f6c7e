// Squares 3 GiB of numbers.
//
//     ./large           copies all of them to the GPU first, as one array
//     ./large fixed     uses one buffer of 64 MiB for one part after the other
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t MIB = 1 << 20;
static const size_t ALL = 3 << 10;

int main(int count, char **arguments) {
    int is_fixed = count > 1 && strcmp(arguments[1], "fixed") == 0;
    size_t part = is_fixed ? 64 : ALL;
    void *on_gpu, *part_of_host = calloc(1, 64 * MIB);
    if (cudaMalloc(&on_gpu, part * MIB) != cudaSuccess) {
        printf("%zu MiB do not fit\n", part);
        return 1;
    }
    for (size_t done = 0; done < ALL; done += 64) {
        void *place = (char *)on_gpu + (is_fixed ? 0 : done * MIB);
        cudaMemcpy(place, part_of_host, 64 * MIB, cudaMemcpyHostToDevice);
    }
    printf("%zu MiB done\n", ALL);
    cudaFree(on_gpu);
    free(part_of_host);
    return 0;
}
