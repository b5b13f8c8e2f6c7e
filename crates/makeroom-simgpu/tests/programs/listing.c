/* What NVML tells of the first card. */
#include <dlfcn.h>
#include <stdio.h>

#define CALL(name, ...) (((int (*)())dlsym(library, #name))(__VA_ARGS__))

int main(void) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *device;
    unsigned count = 0, index, processes = 16; char text[96];
    unsigned long memory[3];
    struct { unsigned version; unsigned long total, reserved, free, used; } with_reserve;
    struct { unsigned id; unsigned long bytes; unsigned instance, compute_instance; } listed[16];
    if (!library) return 2;
    printf("before the start %d\n", CALL(nvmlDeviceGetCount_v2, &count));
    printf("start %d\n", CALL(nvmlInit_v2));
    CALL(nvmlDeviceGetCount_v2, &count);
    printf("devices %u\n", count);
    printf("handle %d", CALL(nvmlDeviceGetHandleByIndex_v2, 0, &device));
    printf(", not there %d\n", CALL(nvmlDeviceGetHandleByIndex_v2, 9, text));
    CALL(nvmlDeviceGetName, device, text, 96); printf("name %s\n", text);
    CALL(nvmlDeviceGetUUID, device, text, 96); printf("uuid %s\n", text);
    printf("by uuid %d", CALL(nvmlDeviceGetHandleByUUID, text, &device));
    printf(", short buffer %d\n", CALL(nvmlDeviceGetName, device, text, 4));
    CALL(nvmlDeviceGetMemoryInfo, device, memory);
    printf("first form: total %lu free %lu used %lu\n", memory[0] >> 20, memory[1] >> 20, memory[2] >> 20);
    with_reserve.version = sizeof with_reserve | 2 << 24;
    CALL(nvmlDeviceGetMemoryInfo_v2, device, &with_reserve);
    printf("second form: total %lu reserved %lu free %lu used %lu\n", with_reserve.total >> 20,
           with_reserve.reserved >> 20, with_reserve.free >> 20, with_reserve.used >> 20);
    int answer = CALL(nvmlDeviceGetComputeRunningProcesses_v3, device, &processes, listed);
    printf("processes %d: %u\n", answer, processes);
    for (index = 0; index < processes; index++) printf("process %u holds %lu\n", listed[index].id, listed[index].bytes >> 20);
    index = 0;
    printf("without room %d", CALL(nvmlDeviceGetComputeRunningProcesses_v3, device, &index, NULL));
    printf(" needs %u\n", index);
    index = 16;
    printf("graphics %d", CALL(nvmlDeviceGetGraphicsRunningProcesses_v3, device, &index, listed));
    printf(": %u\n", index);
    printf("words %s\n", ((const char *(*)(int))dlsym(library, "nvmlErrorString"))(7));
    printf("end %d", CALL(nvmlShutdown));
    printf(", twice %d\n", CALL(nvmlShutdown));
    printf("driver's functions here %d\n", dlsym(library, "cuInit") != NULL);
    return 0;
}
