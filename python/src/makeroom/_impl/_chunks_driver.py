"""Backend of `chunks` without a framework: the CUDA driver through ctypes, with memory from makeroom's pool.

Arrays have `__cuda_array_interface__`, for Numba, cuda-python and CuPy.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable

from ._chunks_copy import Copier, Place, Ticket
from ._library import OutOfMemoryError, PoolError
from ._native import UsageError
from ._pool import Pool

_NON_BLOCKING = 1
_NO_TIMING = 2


class DeviceArray:
    """An array on the device. Its memory is freed when the object is garbage-collected."""

    def __init__(self, backend: DriverBackend, shape: tuple[int, ...], dtype: Any, stream: int) -> None:
        import numpy

        self.shape, self.dtype = tuple(shape), numpy.dtype(dtype)
        self.nbytes = int(numpy.prod(self.shape, dtype=numpy.int64)) * self.dtype.itemsize
        self._backend = backend
        self.address = backend.pool.allocate(max(self.nbytes, 1), stream, backend.device)

    @property
    def stream(self) -> int:
        """Handle of the stream for work on the array."""
        return self._backend.wire.compute

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "stream": self.stream,
            "version": 3,
        }

    def empty(self, shape: tuple[int, ...] | None = None, dtype: Any = None) -> DeviceArray:
        """Create an array on the same device, by default with the same shape and type."""
        shape, dtype = self.shape if shape is None else shape, self.dtype if dtype is None else dtype
        return DeviceArray(self._backend, shape, dtype, self.stream)

    def __del__(self) -> None:
        address = getattr(self, "address", 0)
        if address:
            self.address = 0
            try:
                self._backend.pool.free(address)
            except PoolError:
                # The context is already destroyed, and the memory with it.
                pass


class Pinned:
    """Pinned host memory."""

    def __init__(self, driver: Driver, bytes: int) -> None:
        self._driver = driver
        place = ctypes.c_void_p()
        driver.call("cuMemHostAlloc", ctypes.byref(place), ctypes.c_size_t(max(bytes, 1)), 0)
        self.address = place.value or 0

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            self._driver.library.cuMemFreeHost(ctypes.c_void_p(self.address))


class Driver:
    """The driver functions that copies need."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise UsageError(f"CUDA driver not found: {error}\n\nhint: run makeroom doctor") from error

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status == 2:
            raise OutOfMemoryError(f"{name} returned 2 (CUDA_ERROR_OUT_OF_MEMORY)")
        if status:
            raise PoolError(f"{name} returned {status}")

    def make(self, name: str, flags: int) -> int:
        handle = ctypes.c_void_p()
        self.call(name, ctypes.byref(handle), ctypes.c_uint(flags))
        return handle.value or 0


class DriverWire:
    """Copy through the driver, with one stream for each direction."""

    def __init__(self, driver: Driver, pool: Pool, device: int) -> None:
        self._driver, self._pool, self._device = driver, pool, device
        self.up, self.compute, self._down = (driver.make("cuStreamCreate", _NON_BLOCKING) for _ in range(3))

    def enter(self) -> None:
        self._pool.make_current(self._device)

    def pinned(self, bytes: int) -> tuple[Pinned, int]:
        buffer = Pinned(self._driver, bytes)
        return buffer, buffer.address

    def computed(self) -> int:
        return self._event(self.compute)

    def follow(self, computed: int) -> None:
        self._after(self._down, computed)

    def send(self, buffer: Pinned, device: DeviceArray, offset: int, bytes: int) -> int:
        return self._copy("cuMemcpyHtoDAsync_v2", device.address + offset, buffer.address, bytes, self.up)

    def fetch(self, buffer: Pinned, device: DeviceArray, offset: int, bytes: int) -> int:
        return self._copy("cuMemcpyDtoHAsync_v2", buffer.address, device.address + offset, bytes, self._down)

    def wait(self, event: int) -> None:
        self._driver.call("cuEventSynchronize", ctypes.c_void_p(event))
        self._driver.call("cuEventDestroy_v2", ctypes.c_void_p(event))

    def compute_what_is_sent(self) -> None:
        """Make later work on the compute stream wait for the copies to the device."""
        self._after(self.compute, self._event(self.up))

    def close(self) -> None:
        for stream in (self.up, self.compute, self._down):
            self._driver.call("cuStreamDestroy_v2", ctypes.c_void_p(stream))

    def _copy(self, name: str, to: int, source: int, bytes: int, stream: int) -> int:
        addresses = ctypes.c_uint64(to), ctypes.c_uint64(source)
        self._driver.call(name, *addresses, ctypes.c_size_t(bytes), ctypes.c_void_p(stream))
        return self._event(stream)

    def _event(self, stream: int) -> int:
        event = self._driver.make("cuEventCreate", _NO_TIMING)
        self._driver.call("cuEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(stream))
        return event

    def _after(self, stream: int, event: int) -> None:
        """Make later work on a stream wait for an event."""
        self._driver.call("cuStreamWaitEvent", ctypes.c_void_p(stream), ctypes.c_void_p(event), ctypes.c_uint(0))
        # The driver keeps the event until the wait is done.
        self._driver.call("cuEventDestroy_v2", ctypes.c_void_p(event))


class DriverBackend:
    def __init__(self, device: int, total: int) -> None:
        self.device = device
        self.driver = Driver()
        self.pool = Pool()
        self.pool.make_current(device)
        self.wire = DriverWire(self.driver, self.pool, device)
        self._copier = Copier(self.wire, total)

    def room(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value + self.pool.stats(self.device).cached

    def submit(self, rows: Any, function: Callable[[Any], Any]) -> Ticket:
        import numpy

        rows = numpy.ascontiguousarray(rows)
        # Allocated on the copy stream, so that it does not wait for the computation.
        piece = DeviceArray(self, rows.shape, rows.dtype, self.wire.up)
        self._copier.send(rows.ctypes.data, piece, rows.nbytes)
        self.wire.compute_what_is_sent()
        result = function(piece)
        if not isinstance(result, DeviceArray):
            raise UsageError(
                f"the function returned {type(result).__name__}, not an array on the GPU\n\n"
                "hint: create the result with piece.empty()"
            )
        return Ticket(piece, result)

    def fetch(self, ticket: Ticket, place: Place) -> None:
        import numpy

        result = ticket.result
        ticket.place = place(result.shape, lambda shape: numpy.empty(shape, result.dtype))
        self._copier.fetch(ticket, result, result.nbytes)

    def finish(self, ticket: Ticket) -> Any:
        return ticket.wait()

    def drain(self) -> None:
        self.driver.call("cuCtxSynchronize")
        self.pool.trim()

    def measure(self, work: Callable[[], Any]) -> tuple[Any, int]:
        before = self.pool.stats(self.device).live
        self.pool.reset_peaks(self.device)
        result = work()
        return result, max(self.pool.stats(self.device).peak_live - before, 0)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError)

    def close(self) -> None:
        self._copier.close()
        self.driver.call("cuCtxSynchronize")
        self.pool.destroy()
        self.wire.close()
