"""Make CuPy and RMM use the pool, through their interfaces for allocators written in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._library import OutOfMemoryError, PoolError

if TYPE_CHECKING:
    from ._pool import Pool


def install_in_cupy(cupy: Any, pool: Pool) -> None:
    """Make CuPy allocate from the pool.

    CuPy allocates on its current stream. It frees memory when an array is garbage-collected, without naming a stream, so the
    memory is freed in the order of the stream that it was allocated on, as in CuPy's own pool.
    """
    if not hasattr(getattr(cupy, "cuda", None), "PythonFunctionAllocator"):
        raise PoolError("this version of CuPy does not support allocators written in Python\n\nhint: upgrade to CuPy 9 or later")

    def allocate(bytes: int, device: int) -> int:
        try:
            return pool.allocate(bytes, cupy.cuda.get_current_stream().ptr, device)
        except OutOfMemoryError as error:
            # The exception that CuPy and its users catch; the original has the details.
            total = error.shortage.reserved if error.shortage else 0
            raise cupy.cuda.memory.OutOfMemoryError(bytes, total, 0) from error

    def free(address: int, device: int) -> None:
        pool.free(address)

    allocator = cupy.cuda.PythonFunctionAllocator(allocate, free)
    cupy.cuda.set_allocator(allocator.malloc)


def install_in_rmm(rmm: Any, pool: Pool) -> None:
    """Make RMM allocate from the pool. RMM passes the stream to both functions."""
    if not hasattr(getattr(rmm, "mr", None), "CallbackMemoryResource"):
        raise PoolError("this version of RMM does not support callbacks\n\nhint: upgrade to RMM 22.06 or later")

    def allocate(bytes: int, stream: Any) -> int:
        return pool.allocate(bytes, handle_of(stream) or 0, _device())

    def free(address: int, bytes: int, stream: Any) -> None:
        handle = handle_of(stream)
        if handle is None:
            # Without the stream's handle, its order cannot be kept: synchronize.
            stream.synchronize()
        pool.free(address, handle or 0)

    rmm.mr.set_current_device_resource(rmm.mr.CallbackMemoryResource(allocate, free))


def handle_of(stream: Any) -> int | None:
    """Return a stream's handle, from a number or from a library's stream object; `None` if the object does not provide it."""
    if stream is None:
        return 0
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        pair = stream.__cuda_stream__
        return int((pair() if callable(pair) else pair)[1])
    for name in ("ptr", "cuda_stream", "handle", "value"):
        value = getattr(stream, name, None)
        if isinstance(value, int):
            return value
    is_default = getattr(stream, "is_default", None)
    return 0 if is_default is not None and is_default() else None


def _device() -> int:
    """Return the device that is current on this thread, according to the driver."""
    import ctypes

    try:
        device = ctypes.c_int()
        if ctypes.CDLL("libcuda.so.1").cuCtxGetDevice(ctypes.byref(device)) == 0:
            return device.value
    except OSError:
        pass
    return 0
