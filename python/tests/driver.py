"""The CUDA driver functions that tests need, through ctypes."""

from __future__ import annotations

import ctypes


class Driver:
    """A context on the first device, with allocate and free."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: object) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            word = "out of memory" if status == 2 else f"error {status}"
            raise RuntimeError(f"CUDA error: {word} ({name})")

    def take(self, bytes: int) -> int:
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(bytes))
        return address.value

    def give(self, address: int) -> None:
        self.call("cuMemFree_v2", ctypes.c_uint64(address))
