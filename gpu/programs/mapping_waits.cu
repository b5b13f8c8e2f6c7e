// Which calls that map memory wait for kernels? A kernel spins until the host allows it to end. While it spins, each call is
// timed; a call that takes as long as the kernel waits for it. The kernel reads memory that stays mapped all the time.
// Prints one line of JSON per call: its name, microseconds without a kernel, microseconds while one spins.
#include "check.cuh"
#include <atomic>
#include <chrono>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>
#include <functional>
#include <thread>

static const size_t PIECE = 20 << 20;
static const auto SPIN = std::chrono::milliseconds(300);

__global__ void spin(volatile int *go, const int *memory, int *sum) {
  int total = 0;
  while (*go == 0) total += memory[threadIdx.x];
  *sum = total;
}

static CUmemAllocationProp properties;
static CUmemAccessDesc access;
static CUdeviceptr range;
static volatile int *go;
static int *memory, *sum;
static cudaStream_t stream;

static double timed(const std::function<CUresult()> &call) {
  auto start = std::chrono::steady_clock::now();
  CHECK(call());
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

// Times a call while a kernel spins. The kernel ends after SPIN, or as soon as the call is done.
static double behind_kernel(const std::function<CUresult()> &call) {
  *go = 0;
  spin<<<1, 32, 0, stream>>>(go, memory, sum);
  CHECK(cudaGetLastError());
  std::atomic<bool> done = false;
  std::thread watchdog([&] {
    auto end = std::chrono::steady_clock::now() + SPIN;
    while (!done && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    *go = 1;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  double time = timed(call);
  done = true;
  watchdog.join();
  CHECK(cudaStreamSynchronize(stream));
  return time;
}

static void report(const char *name, double idle, double busy) {
  std::printf("{\"call\": \"%s\", \"idle_us\": %.1f, \"behind_kernel_us\": %.1f}\n", name, idle, busy);
}

int main() {
  CHECK(cudaFree(0));
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK(cudaHostAlloc((void **)&go, sizeof *go, cudaHostAllocMapped));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  // The kernel's memory is the first piece of the range in which the calls take place.
  CHECK(cuMemAddressReserve(&range, 64 * PIECE, 0, 0, 0));
  CUmemGenericAllocationHandle used;
  CHECK(cuMemCreate(&used, PIECE, &properties, 0));
  CHECK(cuMemMap(range, PIECE, 0, used, 0));
  CHECK(cuMemSetAccess(range, PIECE, &access, 1));
  memory = (int *)range;
  CHECK(cudaMemset(memory, 0, PIECE));
  sum = memory + 1024;
  *go = 1;
  spin<<<1, 32, 0, stream>>>(go, memory, sum);
  CHECK(cudaDeviceSynchronize());

  CUmemGenericAllocationHandle handle, second;
  CUdeviceptr at = range + PIECE;
  auto create = [&] { return cuMemCreate(&handle, PIECE, &properties, 0); };
  auto map = [&] { return cuMemMap(at, PIECE, 0, handle, 0); };
  auto set_access = [&] { return cuMemSetAccess(at, PIECE, &access, 1); };
  auto unmap = [&] { return cuMemUnmap(at, PIECE); };
  auto release = [&] { return cuMemRelease(handle); };
  double idle[5], busy[5];
  for (int round = 0; round < 2; ++round) {
    auto measure = [&](const std::function<CUresult()> &call) { return round == 0 ? timed(call) : behind_kernel(call); };
    double *times = round == 0 ? idle : busy;
    times[0] = measure(create);
    times[1] = measure(map);
    times[2] = measure(set_access);
    times[3] = measure(unmap);
    times[4] = measure(release);
  }
  const char *names[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease"};
  for (int i = 0; i < 5; ++i) report(names[i], idle[i], busy[i]);

  // A page that moves: unmapped at one address and mapped at another, as one sequence.
  CHECK(create());
  CHECK(map());
  CHECK(set_access());
  auto move = [&] {
    CUresult status = cuMemUnmap(at, PIECE);
    at = at == range + PIECE ? range + 2 * PIECE : range + PIECE;
    if (status == CUDA_SUCCESS) status = cuMemMap(at, PIECE, 0, handle, 0);
    return status == CUDA_SUCCESS ? cuMemSetAccess(at, PIECE, &access, 1) : status;
  };
  double moved = timed(move);
  report("move", moved, behind_kernel(move));

  // Growth of a range whose neighbor is in use, as one sequence.
  auto grow = [&] {
    CUresult status = cuMemCreate(&second, PIECE, &properties, 0);
    if (status == CUDA_SUCCESS) status = cuMemMap(range + 3 * PIECE, PIECE, 0, second, 0);
    return status == CUDA_SUCCESS ? cuMemSetAccess(range + 3 * PIECE, PIECE, &access, 1) : status;
  };
  double grown = timed(grow);
  CHECK(cuMemUnmap(range + 3 * PIECE, PIECE));
  CHECK(cuMemRelease(second));
  report("grow", grown, behind_kernel(grow));

  // The same calls while the thread captures a stream: whether they are allowed.
  for (auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeRelaxed}) {
    CHECK(cuMemUnmap(range + 3 * PIECE, PIECE));
    CHECK(cuMemRelease(second));
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, mode));
    CUresult status = grow();
    cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    std::printf("{\"call\": \"grow in a capture\", \"mode\": %d, \"status\": %d, \"capture\": %d}\n", int(mode), int(status), int(ended));
    if (status != CUDA_SUCCESS) CHECK(grow());
    cudaGetLastError();
  }
  return 0;
}
