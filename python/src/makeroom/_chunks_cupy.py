"""Pieces with CuPy: copies on a stream of their own for each direction, through pinned memory."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from ._native import UsageError


class Ticket(NamedTuple):
    """A result on its way back. What it is computed from is kept: CuPy's pool reuses memory in the order of one stream."""

    result: Any
    is_back: Any
    kept: tuple[Any, ...]


class CupyBackend:
    def __init__(self, device: int) -> None:
        import cupy
        import cupyx

        self._cupy, self._cupyx = cupy, cupyx
        try:
            self._device = cupy.cuda.Device(device)
            self._device.use()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise UsageError(f"CuPy finds no device {device}: {error}\n\nhint: makeroom doctor") from error
        self._up, self._down = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))

    def room(self) -> int:
        return self._device.mem_info[0] + self._cupy.get_default_memory_pool().free_bytes()

    def submit(self, rows: Any, function: Callable[[Any], Any]) -> Ticket:
        cupy = self._cupy
        staged = self._cupyx.empty_pinned(rows.shape, rows.dtype)
        staged[...] = rows
        compute = cupy.cuda.get_current_stream()
        with self._up:
            piece = cupy.empty(rows.shape, rows.dtype)
            piece.set(staged, stream=self._up)
        compute.wait_event(self._up.record())
        result = function(piece)
        if not isinstance(result, cupy.ndarray):
            raise UsageError(f"the function gave a {type(result).__name__}, not an array of CuPy")
        result = cupy.ascontiguousarray(result)
        back = self._cupyx.empty_pinned(result.shape, result.dtype)
        self._down.wait_event(compute.record())
        result.get(stream=self._down, out=back, blocking=False)
        return Ticket(back, self._down.record(), (staged, piece, result))

    def finish(self, ticket: Ticket) -> Any:
        ticket.is_back.synchronize()
        return ticket.result

    def drain(self) -> None:
        self._device.synchronize()
        self._cupy.get_default_memory_pool().free_all_blocks()

    def measure(self, work: Callable[[], Any]) -> tuple[Any, int]:
        pool = self._cupy.get_default_memory_pool()
        pool.free_all_blocks()
        before = pool.total_bytes()
        result = work()
        # The pool keeps what it took, so what it has more now is what was there at once, rounded up.
        return result, max(pool.total_bytes() - before, 0)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, self._cupy.cuda.memory.OutOfMemoryError)

    def close(self) -> None:
        # Nothing must be under way when a failure is reported: the data may be gone then.
        self._device.synchronize()
