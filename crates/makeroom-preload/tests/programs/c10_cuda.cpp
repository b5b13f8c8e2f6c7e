// What PyTorch's libc10_cuda.so does: it calls libc10.so through the dynamic linker.
#include <cstdint>
#include <stdexcept>
namespace c10 {
struct Device { int8_t type, index; };
void reportMemoryUsageToProfiler(void *, long, unsigned long, unsigned long, Device);
void reportOutOfMemoryToProfiler(long, unsigned long, unsigned long, Device);
}
extern "C" int allocates() {
    c10::Device cuda{1, 0}, cpu{0, -1};
    c10::reportMemoryUsageToProfiler((void *)0x1000, 512, 512, 1024, cuda);
    c10::reportMemoryUsageToProfiler((void *)0x2000, 64, 0, 0, cpu);
    c10::reportMemoryUsageToProfiler((void *)0x1000, -512, 0, 1024, cuda);
    c10::reportOutOfMemoryToProfiler(1 << 30, 512, 1024, cuda);
    try {
        c10::reportMemoryUsageToProfiler((void *)0x3000, 512, 512, 1024, cuda);
    } catch (const std::runtime_error &) {
        return 1;
    }
    return 0;
}
