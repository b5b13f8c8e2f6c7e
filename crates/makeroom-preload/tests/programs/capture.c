// Allocates while a stream is being captured, long enough for a sample to be due: the capture must not break.
#include "cuda.h"
#include <unistd.h>
int main(void) {
    CUhandle graph, stream;
    CUdeviceptr pointer;
    begin();
    OK(cuStreamCreate(&stream, 1));
    OK(cuStreamBeginCapture_v2(stream, 0));
    for (int i = 0; i < 4; i++) {
        OK(cuMemAllocAsync(&pointer, 4096, stream));
        usleep(150000);
    }
    printf("%d\n", cuMemAllocAsync(&pointer, (size_t)1 << 40, stream));
    OK(cuStreamEndCapture(stream, &graph));
    round_trip(1 << 10);
    printf("done\n");
    return 0;
}
