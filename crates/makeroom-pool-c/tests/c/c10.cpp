// PyTorch's library, as far as the pool uses it: the function with which its checks fail.
#include <stdexcept>

namespace c10::detail {
[[noreturn]] void torchCheckFail(const char *, const char *, unsigned, const char *message) {
    throw std::runtime_error(message);
}
}  // namespace c10::detail
