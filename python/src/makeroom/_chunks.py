"""A function over data larger than the GPU, in pieces.

While one piece is computed, the next is on its way to the GPU and the last on its way back. Pieces are as large as the room
allows: a small first piece shows what the function takes for each row, and the others are sized by that. A piece for which
memory does not suffice after all is halved and done again.

What computes is a backend (`_chunks_torch.py`, `_chunks_cupy.py`, `_chunks_driver.py`), and copies for all of them are
`_chunks_copy.py`'s; what is here knows no GPU.
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

# What is left alone of the room: libraries take workspaces that nobody counts.
_MARGIN = 0.08
# The first piece is this part of the room, to see what the function takes.
_PROBE = 1 / 64
# Pieces between the host and the device at once, one on each way beside the one that is computed.
_IN_FLIGHT = 2


class Piece(NamedTuple):
    """Rows on their way."""

    start: int
    stop: int
    ticket: Any


class Backend(Protocol):
    """What a framework does for one piece. Nothing here waits for the device, except `finish` and `drain`."""

    def room(self) -> int:
        """Free bytes of the device, with what the framework keeps and does not use."""

    def submit(self, rows: Any, function: Callable[[Any], Any]) -> Any:
        """Sends rows to the device and computes; a ticket for the result."""

    def fetch(self, ticket: Any, place: Place) -> None:
        """Begins to send a result back, to its place on the host."""

    def finish(self, ticket: Any) -> Any:
        """Waits for a result and gives it, on the host. Its memory on the device is free when the ticket is gone."""

    def drain(self) -> None:
        """Waits for everything and gives unused memory back, after memory ran out."""

    def measure(self, work: Callable[[], Any]) -> tuple[Any, int]:
        """Does something and says how many bytes of the device it took at its peak."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether an error says that there is no memory."""

    def close(self) -> None:
        """Gives everything back that only this needed."""


def chunks(
    array: Any,
    function: Callable[[Any], Any],
    *,
    out: Any = None,
    reduce: Callable[[Any, Any], Any] | None = None,
    rows: int | None = None,
    room: Size | None = None,
    backend: str | None = None,
    device: int = 0,
) -> Any:
    """Calls a function with pieces of an array on the GPU and puts the results together on the host.

    `array` lies on the host: of NumPy (also a `memmap` of a file), or a CPU tensor of PyTorch. `function` gets a piece, rows
    along the first axis, on the GPU, and gives a result there, with as many rows: results are put one after the other, into
    `out` if it is given. With `reduce` they are combined instead: `reduce(so_far, result)`, on the host.

    Pieces have `rows` rows, or as many as `room` allows, or what is free on the device. `backend` is `"torch"`, `"cupy"`, or
    `"driver"`, which needs neither and gives the function arrays with `__cuda_array_interface__`, for Numba and others;
    without it, the one that is imported.
    """
    total = _rows_of(array)
    if out is not None and (reduce is not None or _rows_of(out) != total):
        wrong = "reduce gives one result" if reduce is not None else f"it has {_rows_of(out)} rows and the data {total}"
        raise UsageError(f"out does not fit: {wrong}")
    if rows is not None and rows < 1:
        raise UsageError(f"rows={rows}: a piece has at least one row")
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
            # Outside of what is tried again: a host that has no room for a result is not helped by smaller pieces.
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
            # When memory is short, what is waited for must be gone after that.
            del ticket
        while self._waiting:
            self._take_back()

    def drop(self) -> None:
        """Lets go of what is on its way, after a failure."""
        self._waiting.clear()

    def _probe(self, room: int) -> int:
        """Does the first rows alone, and sizes pieces by what they took."""
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
        # Beside the piece that is computed, another comes and one leaves.
        beside = row + _bytes_of(result) // first
        return max(usable // (max(taken // first, row) + beside), 1)

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
        """Half as many rows, after memory ran out; what is under way is finished first."""
        if not self._engine.is_out_of_memory(error):
            raise error
        if rows <= 1:
            raise MemoryError(
                "one row does not fit on the device with what the function takes for it\n\n"
                "hint: cut the data along another axis, or do less at once in the function"
            ) from error
        # The piece that failed is held by the error.
        clear_frames(error.__traceback__)
        while self._waiting:
            self._take_back()
        self._engine.drain()
        return rows // 2


class _Gather:
    """Results on the host: one after the other, or combined."""

    def __init__(self, total: int, out: Any, reduce: Callable[[Any, Any], Any] | None) -> None:
        self._total, self._out, self._reduce = total, out, reduce
        self._combined: Any = None
        self._has_one = False
        # By their first row, the places that results are on their way to.
        self._placed: dict[int, Any] = {}

    def place(self, start: int, stop: int, shape: tuple[int, ...], make: Make) -> Any:
        """Where a result goes: where it stays, if its bytes can lie there as they are."""
        if self._reduce is not None:
            return make(shape)
        self._check(shape, stop - start)
        if self._out is None:
            self._out = make((self._total, *shape[1:]))
            use_large_pages(self._out)
        place = self._out[start:stop]
        # Of what is neither an array nor a tensor, such as a data set in a file, a part is a copy.
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
                f"the function gave a result of shape {shape} for {rows} rows\n\n"
                "hint: a result has a row for each row, unless they are combined: chunks(…, reduce=lambda a, b: a + b)"
            )

    def result(self, array: Any) -> Any:
        if self._reduce is not None:
            return self._combined
        return array[:0] if self._out is None else self._out


def _rows_of(array: Any) -> int:
    shape = getattr(array, "shape", None)
    if not shape:
        raise UsageError(f"{type(array).__name__} has no rows\n\nhint: an array of NumPy or a CPU tensor of PyTorch")
    return int(shape[0])


def _bytes_of(array: Any) -> int:
    return int(array.nbytes)


def _is_alike(place: Any, shape: tuple[int, ...], example: Any) -> bool:
    """Whether bytes of results such as an example can lie in a place."""
    return place.dtype == example.dtype and tuple(place.shape) == shape and address_of(place) is not None


def _empty_like(result: Any, shape: tuple[int, ...]) -> Any:
    if hasattr(result, "new_empty"):
        return result.new_empty(shape)
    import numpy

    return numpy.empty(shape, result.dtype)


def _backend(name: str | None, array: Any, device: int) -> Backend:
    is_tensor = type(array).__module__.split(".")[0] == "torch"
    if is_tensor and array.is_cuda:
        raise UsageError("the data is on the GPU already\n\nhint: chunks() is for data on the host: array.cpu()")
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
        raise UsageError(f"a tensor is for backend='torch', not {name!r}\n\nhint: tensor.numpy()")
    if name == "cupy":
        from ._chunks_cupy import CupyBackend

        return CupyBackend(device, _bytes_of(array))
    if name == "driver":
        from ._chunks_driver import DriverBackend

        return DriverBackend(device, _bytes_of(array))
    raise UsageError(f"there is no backend {name!r}\n\nhint: 'torch', 'cupy' or 'driver'")
