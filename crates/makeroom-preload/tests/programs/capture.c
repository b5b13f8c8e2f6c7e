// Allocates while a stream is being captured, long enough for a sample to be due: the capture must not break.
#include "cuda.h"
#include <unistd.h>
int main(void) {
    CUhandle graph;
    CUdeviceptr pointer;
    begin();
    OK(cuStreamBeginCapture_v2(0, 0));
    for (int i = 0; i < 4; i++) {
        OK(cuMemAllocAsync(&pointer, 4096, 0));
        usleep(150000);
    }
    printf("%d\n", cuMemAllocAsync(&pointer, (size_t)1 << 40, 0));
    OK(cuStreamEndCapture(0, &graph));
    round_trip(1 << 10);
    printf("done\n");
    return 0;
}
