// What PyTorch's libc10.so exports, as far as the recorder hooks it. The third block makes it throw.
#include <cstdint>
#include <cstdio>
#include <stdexcept>
namespace c10 {
struct Device { int8_t type, index; };
__attribute__((visibility("default"))) void reportMemoryUsageToProfiler(void *block, long size, unsigned long allocated,
                                                                        unsigned long reserved, Device device) {
    printf("profiler: %p %ld %lu %lu %d %d\n", block, size, allocated, reserved, device.type, device.index);
    if (block == (void *)0x3000) throw std::runtime_error("profiler");
}
__attribute__((visibility("default"))) void reportOutOfMemoryToProfiler(long size, unsigned long allocated,
                                                                        unsigned long reserved, Device device) {
    printf("profiler: refused %ld %d %d\n", size, device.type, device.index);
}
}
