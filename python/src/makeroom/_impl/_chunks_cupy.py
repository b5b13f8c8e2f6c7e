"""CuPy backend of `chunks`, with one copy stream for each direction."""

from __future__ import annotations

from typing import Any, Callable

from ._chunks_copy import Copier, Place, Ticket
from ._native import UsageError

_TO_DEVICE, _TO_HOST = 1, 2


class CupyWire:
    """Copies between pinned memory and CuPy arrays."""

    def __init__(self, cupy: Any, device: Any) -> None:
        self._cupy, self._device = cupy, device
        self.up, self.down = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))

    def enter(self) -> None:
        self._device.use()

    def pinned(self, bytes: int) -> tuple[Any, int]:
        buffer = self._cupy.cuda.alloc_pinned_memory(bytes)
        return buffer, buffer.ptr

    def computed(self) -> Any:
        return self._cupy.cuda.get_current_stream().record()

    def follow(self, computed: Any) -> None:
        self.down.wait_event(computed)

    def send(self, buffer: Any, device: Any, offset: int, bytes: int) -> Any:
        self._cupy.cuda.runtime.memcpyAsync(device.data.ptr + offset, buffer.ptr, bytes, _TO_DEVICE, self.up.ptr)
        return self.up.record()

    def fetch(self, buffer: Any, device: Any, offset: int, bytes: int) -> Any:
        self._cupy.cuda.runtime.memcpyAsync(buffer.ptr, device.data.ptr + offset, bytes, _TO_HOST, self.down.ptr)
        return self.down.record()

    def wait(self, event: Any) -> None:
        event.synchronize()


class CupyBackend:
    def __init__(self, device: int, total: int) -> None:
        import cupy

        self._cupy = cupy
        try:
            self._device = cupy.cuda.Device(device)
            self._device.use()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise UsageError(f"CuPy found no device {device}: {error}\n\nhint: run makeroom doctor") from error
        self._wire = CupyWire(cupy, self._device)
        self._copier = Copier(self._wire, total)

    def room(self) -> int:
        return int(self._device.mem_info[0] + self._cupy.get_default_memory_pool().free_bytes())

    def submit(self, rows: Any, function: Callable[[Any], Any]) -> Ticket:
        import numpy

        cupy = self._cupy
        rows = numpy.ascontiguousarray(rows)
        compute = cupy.cuda.get_current_stream()
        with self._wire.up:
            piece = cupy.empty(rows.shape, rows.dtype)
        self._copier.send(rows.ctypes.data, piece, rows.nbytes)
        compute.wait_event(self._wire.up.record())
        result = function(piece)
        if not isinstance(result, cupy.ndarray):
            raise UsageError(
                f"the function returned {type(result).__name__}, not a CuPy array\n\nhint: return an array on the GPU"
            )
        return Ticket(piece, cupy.ascontiguousarray(result).reshape(result.shape))

    def fetch(self, ticket: Ticket, place: Place) -> None:
        import numpy

        result = ticket.result
        ticket.place = place(tuple(result.shape), lambda shape: numpy.empty(shape, result.dtype))
        self._copier.fetch(ticket, result, result.nbytes)

    def finish(self, ticket: Ticket) -> Any:
        return ticket.wait()

    def drain(self) -> None:
        self._device.synchronize()
        self._cupy.get_default_memory_pool().free_all_blocks()

    def measure(self, work: Callable[[], Any]) -> tuple[Any, int]:
        pool = self._cupy.get_default_memory_pool()
        pool.free_all_blocks()
        before = pool.total_bytes()
        result = work()
        # The pool does not shrink, so its growth is the peak, rounded up.
        return result, max(pool.total_bytes() - before, 0)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, self._cupy.cuda.memory.OutOfMemoryError)

    def close(self) -> None:
        # Finish all copies before an error reaches the caller, who may then free the data.
        self._copier.close()
        self._device.synchronize()
