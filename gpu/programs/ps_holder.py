"""Holds memory of the first GPU in one way, says `ready`, and keeps it until its input ends.

    ps_holder.py plain MIB     a context and one allocation, by the driver's own interface
    ps_holder.py idle          a context and nothing else
    ps_holder.py stream MIB    memory in stream order
    ps_holder.py managed MIB   managed memory, written by the device
    ps_holder.py torch MIB     one tensor of PyTorch
"""
import ctypes
import sys


def context():
    """The driver, with a context of its own."""
    driver = ctypes.CDLL("libcuda.so.1")
    for status in (driver.cuInit(0), driver.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0)):
        if status:
            sys.exit(f"no context: {status}")
    return driver


def main():
    kind, size = sys.argv[1], int(sys.argv[2] if len(sys.argv) > 2 else 0) << 20
    if kind == "torch":
        import torch

        held = torch.ones(size, dtype=torch.uint8, device="cuda")
    elif kind in ("stream", "managed"):
        held, place = context(), ctypes.c_uint64()
        if kind == "stream":
            status = held.cuMemAllocAsync(ctypes.byref(place), ctypes.c_size_t(size), None)
        else:
            # 1: any stream may use it. It is on the device once that has written it.
            status = held.cuMemAllocManaged(ctypes.byref(place), ctypes.c_size_t(size), 1)
            status = status or held.cuMemsetD8_v2(place, 1, ctypes.c_size_t(size))
        if status or (status := held.cuCtxSynchronize()):
            sys.exit(f"no memory: {status}")
    else:
        held = context()
        if size and (status := held.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(size))):
            sys.exit(f"no memory: {status}")
    print("ready", flush=True)
    sys.stdin.read()
    del held


main()
