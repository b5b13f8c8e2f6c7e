// Takes all of the card with plain allocations until one is refused, gives it all back, and ends well.
// Argument: the size of a piece in MiB. The free memory at the refusal goes to stderr: it may differ between runs.
#include "check.cuh"
#include <vector>

static bool take(std::vector<void*>& held, size_t bytes) {
  void* block;
  if (cudaMalloc(&block, bytes) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  held.push_back(block);
  return true;
}

int main(int argc, char** argv) {
  size_t bytes = size_t(argc > 1 ? std::atoi(argv[1]) : 1024) << 20;
  std::vector<void*> held;
  while (take(held, bytes)) {
  }
  size_t free_bytes, total;
  CHECK(cudaMemGetInfo(&free_bytes, &total));
  std::fprintf(stderr, "refused with %zu of %zu bytes free, %zu held\n", free_bytes, total, held.size() * bytes);
  for (void* block : held) CHECK(cudaFree(block));
  std::printf("refused, and all given back\n");
  return 0;
}
