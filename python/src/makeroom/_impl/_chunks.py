"""Apply a function to data larger than the GPU, in pieces.

While one piece is computed, the next is copied to the GPU and the previous result is copied back. Pieces are as large as the
free memory allows: a small first piece shows how much memory the function needs for each row. A piece that runs out of
memory is halved and retried.

This module does not depend on a GPU framework. Backends compute (`_chunks_torch.py`, `_chunks_cupy.py`,
`_chunks_driver.py`); `_chunks_copy.py` copies for all of them.
"""

from __future__ import annotations

import sys
from collections import deque
from functools import partial
from traceback import clear_frames
from typing import Any, Callable, NamedTuple, Protocol

from ._chunks_copy import Make, Place, address_of, use_large_pages
from ._native import UsageError
from ._sizes import Size, parse
from ._types import BackendName

# Share of the memory to leave free, for workspaces of libraries.
_MARGIN = 0.08
# Size of the first piece, as a share of the usable memory.
_PROBE = 1 / 64
# Pieces in flight: one is copied in each direction while a third is computed.
_IN_FLIGHT = 2


class Piece(NamedTuple):
    """A range of rows in flight."""

    start: int
    stop: int
    ticket: Any


class Backend(Protocol):
    """Operations of a framework on one piece. Only `finish` and `drain` wait for the device."""

    def room(self) -> int:
        """Return the free bytes of the device, including the framework's cache."""

    def submit(self, rows: Any, function: Callable[[Any], Any]) -> Any:
        """Copy rows to the device, call the function, and return a ticket for the result."""

    def fetch(self, ticket: Any, place: Place) -> None:
        """Start copying a result to its place on the host."""

    def finish(self, ticket: Any) -> Any:
        """Wait for a result and return it as an array on the host. Dropping the ticket frees its device memory."""

    def drain(self) -> None:
        """Wait for the device and release cached memory, after an out-of-memory error."""

    def measure(self, work: Callable[[], Any]) -> tuple[Any, int]:
        """Call `work` and return its result and the peak of device memory that it needed, in bytes."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return whether an error is an out-of-memory error."""

    def close(self) -> None:
        """Release all resources of the backend."""


def chunks(
    array: Any,
    function: Callable[[Any], Any],
    *,
    out: Any = None,
    reduce: Callable[[Any, Any], Any] | None = None,
    rows: int | None = None,
    room: Size | None = None,
    backend: BackendName | None = None,
    device: int = 0,
) -> Any:
    """Apply a function to an array in host memory, piece by piece on the GPU.

    Args:
        array: A NumPy array (including `memmap`) or a PyTorch CPU tensor, divided along its first axis.
        function: Called with each piece on the GPU. It returns an array on the GPU with the same number of rows, or of
            any shape with `reduce`.
        out: Array for the results [default: a new array].
        reduce: Combines results on the host instead of concatenating them: `reduce(total, result)`.
        rows: Rows in each piece [default: as many as `room` allows].
        room: GPU memory to use, in bytes or as a string such as `"8GiB"` [default: the free memory].
        backend: `"torch"`, `"cupy"` or `"driver"` [default: the imported one]. `"driver"` needs no framework: pieces
            have `__cuda_array_interface__`, and `piece.empty()` creates an array for the result.
        device: Index of the GPU.

    Returns:
        The results on the host: `out`, a new array, or the combined result.

    Raises:
        UsageError: An argument is invalid, or a result does not have as many rows as its piece.
        MemoryError: A single row does not fit on the GPU.

    Examples:
        >>> result = makeroom.chunks(array, lambda piece: piece @ weights)
        >>> total = makeroom.chunks(array, lambda piece: piece.sum(), reduce=lambda a, b: a + b)
    """
    total = _rows_of(array)
    if out is not None and (reduce is not None or _rows_of(out) != total):
        wrong = "reduce returns one result" if reduce is not None else f"it has {_rows_of(out)} rows, not {total}"
        raise UsageError(f"out cannot be used: {wrong}\n\nhint: omit out, and chunks() returns a new result")
    if rows is not None and rows < 1:
        raise UsageError(f"rows={rows}: a piece must have at least one row\n\nhint: omit rows to fill the GPU")
    engine = _backend(backend, array, device)
    gather = _Gather(total, out, reduce)
    run = _Run(engine, array, function, gather, total)
    try:
        if total:
            run.all(rows, None if room is None else parse(room))
    finally:
        run.drop()
        engine.close()
    return gather.result(array)


class _Run:
    """One pass over the data."""

    def __init__(self, engine: Backend, array: Any, function: Callable[[Any], Any], gather: _Gather, total: int) -> None:
        self._engine, self._array, self._function = engine, array, function
        self._gather, self._total = gather, total
        self._waiting: deque[Piece] = deque()
        self._next = 0

    def all(self, rows: int | None, room: int | None) -> None:
        rows = rows or self._probe(room if room is not None else self._engine.room())
        while self._next < self._total:
            stop = min(self._next + rows, self._total)
            # Outside the retry: smaller pieces do not help if the host is out of memory.
            while len(self._waiting) >= _IN_FLIGHT:
                self._take_back()
            try:
                ticket = self._engine.submit(self._array[self._next : stop], self._function)
            except Exception as error:
                rows = self._smaller(error, stop - self._next)
                continue
            self._engine.fetch(ticket, partial(self._gather.place, self._next, stop))
            self._waiting.append(Piece(self._next, stop, ticket))
            self._next = stop
            # `_take_back` must free the device memory, so keep no reference to the ticket.
            del ticket
        while self._waiting:
            self._take_back()

    def drop(self) -> None:
        """Drop the pieces in flight, after a failure."""
        self._waiting.clear()

    def _probe(self, room: int) -> int:
        """Compute the first rows alone and, from the memory they needed, return how many rows fit in a piece."""
        usable = int(room * (1 - _MARGIN))
        row = max(_bytes_of(self._array) // self._total, 1)
        first = max(min(int(usable * _PROBE) // row, self._total), 1)
        while True:
            rows = self._array[:first]
            try:
                result, taken = self._engine.measure(lambda: self._alone(rows))
                break
            except Exception as error:
                first = self._smaller(error, first)
        self._gather.put(0, first, result)
        self._next = first
        # While a piece is computed, the next one and the previous result are also on the device.
        in_flight = row + _bytes_of(result) // first
        return max(usable // (max(taken // first, row) + in_flight), 1)

    def _alone(self, rows: Any) -> Any:
        ticket = self._engine.submit(rows, self._function)
        self._engine.fetch(ticket, lambda shape, make: make(shape))
        return self._engine.finish(ticket)

    def _take_back(self) -> None:
        piece = self._waiting[0]
        result = self._engine.finish(piece.ticket)
        self._waiting.popleft()
        self._gather.put(piece.start, piece.stop, result)

    def _smaller(self, error: Exception, rows: int) -> int:
        """Finish the pieces in flight after an out-of-memory error and return half as many rows. Re-raise any other error."""
        if not self._engine.is_out_of_memory(error):
            raise error
        if rows <= 1:
            raise MemoryError(
                "one row does not fit on the GPU together with the memory that the function needs to process it\n\n"
                "hint: split the data along another axis, or use less temporary memory in the function"
            ) from error
        # The frames of the error hold the piece that failed.
        clear_frames(error.__traceback__)
        while self._waiting:
            self._take_back()
        self._engine.drain()
        return rows // 2


class _Gather:
    """Results on the host, concatenated or combined."""

    def __init__(self, total: int, out: Any, reduce: Callable[[Any, Any], Any] | None) -> None:
        self._total, self._out, self._reduce = total, out, reduce
        self._combined: Any = None
        self._has_one = False
        # Places of results in flight, by first row.
        self._placed: dict[int, Any] = {}

    def place(self, start: int, stop: int, shape: tuple[int, ...], make: Make) -> Any:
        """Return an array for a result: a slice of `out` if the bytes can be copied there directly, else a new one."""
        if self._reduce is not None:
            return make(shape)
        self._check(shape, stop - start)
        if self._out is None:
            self._out = make((self._total, *shape[1:]))
            use_large_pages(self._out)
        place = self._out[start:stop]
        # Slicing an object that is neither an array nor a tensor, such as a data set in a file, makes a copy.
        example = make((0,))
        if not isinstance(self._out, type(example)) or not _is_alike(place, shape, example):
            return make(shape)
        self._placed[start] = place
        return place

    def put(self, start: int, stop: int, result: Any) -> None:
        if self._reduce is not None:
            self._combined = self._reduce(self._combined, result) if self._has_one else result
            self._has_one = True
            return
        if self._placed.pop(start, None) is result:
            return
        shape = tuple(getattr(result, "shape", ()))
        self._check(shape, stop - start)
        if self._out is None:
            self._out = _empty_like(result, (self._total, *shape[1:]))
            use_large_pages(self._out)
        self._out[start:stop] = result

    def _check(self, shape: tuple[int, ...], rows: int) -> None:
        if not shape or shape[0] != rows:
            raise UsageError(
                f"the function returned a result of shape {shape} for {rows} rows\n\n"
                "hint: return one row for each row, or combine results: chunks(…, reduce=lambda a, b: a + b)"
            )

    def result(self, array: Any) -> Any:
        if self._reduce is not None:
            return self._combined
        return array[:0] if self._out is None else self._out


def _rows_of(array: Any) -> int:
    shape = getattr(array, "shape", None)
    if not shape:
        raise UsageError(f"{type(array).__name__} has no rows\n\nhint: use a NumPy array or a PyTorch CPU tensor")
    return int(shape[0])


def _bytes_of(array: Any) -> int:
    return int(array.nbytes)


def _is_alike(place: Any, shape: tuple[int, ...], example: Any) -> bool:
    """Return whether the bytes of a result can be copied to `place` without conversion."""
    return place.dtype == example.dtype and tuple(place.shape) == shape and address_of(place) is not None


def _empty_like(result: Any, shape: tuple[int, ...]) -> Any:
    if hasattr(result, "new_empty"):
        return result.new_empty(shape)
    import numpy

    return numpy.empty(shape, result.dtype)


def _backend(name: str | None, array: Any, device: int) -> Backend:
    is_tensor = type(array).__module__.split(".")[0] == "torch"
    if is_tensor and array.is_cuda:
        raise UsageError("the data is already on the GPU\n\nhint: chunks() takes data on the host: array.cpu()")
    if name is None:
        if is_tensor:
            name = "torch"
        else:
            name = next((each for each in ("cupy", "torch") if each in sys.modules), None)
        if name is None:
            raise UsageError("neither PyTorch nor CuPy is imported\n\nhint: import one, or chunks(…, backend='driver')")
    if name == "torch":
        from ._chunks_torch import TorchBackend

        return TorchBackend(device, _bytes_of(array))
    if is_tensor:
        raise UsageError(f"backend {name!r} does not accept tensors\n\nhint: use backend='torch', or pass tensor.numpy()")
    if name == "cupy":
        from ._chunks_cupy import CupyBackend

        return CupyBackend(device, _bytes_of(array))
    if name == "driver":
        from ._chunks_driver import DriverBackend

        return DriverBackend(device, _bytes_of(array))
    raise UsageError(f"unknown backend {name!r}\n\nhint: use 'torch', 'cupy' or 'driver'")
