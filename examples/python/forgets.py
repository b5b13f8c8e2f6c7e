"""Takes 256 MiB for a moment in each of six steps and forgets 2 MiB in each: `makeroom run -- python forgets.py` says so.

CUDA's driver through ctypes, so that it runs wherever there is a driver, without any framework.
"""

import ctypes

import makeroom

MIB = 1 << 20
driver = ctypes.CDLL("libcuda.so.1")
driver.cuInit(0)
context = ctypes.c_void_p()
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)
cache: "list[ctypes.c_uint64]" = []


def train() -> None:
    activations = ctypes.c_uint64()
    driver.cuMemAlloc_v2(ctypes.byref(activations), ctypes.c_size_t(256 * MIB))
    remember()
    driver.cuMemFree_v2(activations)


def remember() -> None:
    cache.append(ctypes.c_uint64())
    driver.cuMemAlloc_v2(ctypes.byref(cache[-1]), ctypes.c_size_t(2 * MIB))


with makeroom.watch() as w:
    for _ in range(6):
        train()
        w.step()
print(w)
