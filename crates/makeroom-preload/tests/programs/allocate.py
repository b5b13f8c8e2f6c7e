# Allocates through ctypes, from functions whose names and lines the test knows, on two threads.
import ctypes
import threading

cuda = ctypes.CDLL("libcuda.so.1")
pointer = ctypes.c_uint64()
context = ctypes.c_void_p()


def allocate(size):
    result = cuda.cuMemAlloc_v2(
        ctypes.byref(pointer),
        ctypes.c_size_t(size),
    )
    return result


class Model:
    def forward(self, size):
        return [allocate(size) for _ in range(1)][0]


def généré(size):
    namespace = {"allocate": allocate}
    exec(compile("def made(size):\n\n    return allocate(size)", "<made>", "exec"), namespace)
    return namespace["made"](size)


def work():
    cuda.cuCtxSetCurrent(context)
    allocate(5 << 10)


cuda.cuInit(0)
cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
for step in range(100):
    Model().forward(1 << 10)
    généré(2 << 10)
thread = threading.Thread(target=work)
thread.start()
thread.join()
print("done")
