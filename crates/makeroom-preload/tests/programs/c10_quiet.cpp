// What PyTorch's libc10.so exports, as far as the recorder hooks it, without output.
#include <cstdint>
namespace c10 {
struct Device { int8_t type, index; };
static unsigned long reports;
__attribute__((visibility("default"))) void reportMemoryUsageToProfiler(void *, long, unsigned long, unsigned long, Device) {
    reports++;
}
__attribute__((visibility("default"))) void reportOutOfMemoryToProfiler(long, unsigned long, unsigned long, Device) {
    reports++;
}
}
