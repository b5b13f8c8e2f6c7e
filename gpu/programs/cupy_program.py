"""CuPy: its pool, cuBLAS, cuFFT, a kernel of its own, pinned memory and a stream. Prints whole numbers only."""

import cupy
import cupyx
import numpy

twice = cupy.RawKernel(
    r"""extern "C" __global__ void twice(long long* x, int n) {
        int i = blockDim.x * blockIdx.x + threadIdx.x;
        if (i < n) x[i] *= 2;
    }""",
    "twice",
)

numbers = cupy.arange(1 << 20, dtype=cupy.int64)
twice((4096,), (256,), (numbers, numbers.size))
print("sum", int(numbers.sum()))
rows = cupy.ones((512, 1024), dtype=cupy.float32)
print("product", float((rows @ rows.T).sum()))
print("transform", round(abs(float(cupy.fft.fft(cupy.ones(4096))[0].real))))
with cupy.cuda.Stream(non_blocking=True) as stream:
    pinned = cupyx.empty_pinned(1 << 16, dtype=numpy.float64)
    pinned[:] = 1
    moved = cupy.empty(pinned.shape, pinned.dtype)
    moved.set(pinned)
    stream.synchronize()
    print("moved", int(moved.sum()))
for size in range(1, 64):
    cupy.empty(size << 16, dtype=cupy.uint8)
pool = cupy.get_default_memory_pool()
print("pool", pool.used_bytes(), pool.total_bytes())
