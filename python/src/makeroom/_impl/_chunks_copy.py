"""Staged copies between host and device, at the speed of host memory.

Only copies from and to pinned memory are asynchronous, and pinning memory takes longer than copying through it. All pieces
therefore go through a few pinned buffers: while several threads fill or empty one, the device copies another. One background
thread copies results back, directly to their place.

A `Wire` does a single copy with the functions of a framework.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, NamedTuple, Protocol, Tuple

# Creates an array of this shape on the host, with the type of the result.
Make = Callable[[Tuple[int, ...]], Any]
# Returns the array on the host for a result of this shape.
Place = Callable[[Tuple[int, ...], Make], Any]

# Large enough to amortize the start of a copy, small enough that pinning is cheap.
_BUFFER = 32 << 20
# Double buffering: the device copies one while the host copies the other.
_BUFFERS = 2
# More threads do not copy faster.
_MOST_THREADS = 8
# Handing a smaller part to a thread takes longer than copying it.
_SMALLEST_PART = 1 << 20


class Wire(Protocol):
    """Single asynchronous copies. Only `wait` blocks."""

    def enter(self) -> None:
        """Make the device current on the calling thread."""

    def pinned(self, bytes: int) -> tuple[Any, int]:
        """Return a pinned buffer and its address."""

    def computed(self) -> Any:
        """Return an event for the work submitted up to now."""

    def follow(self, computed: Any) -> None:
        """Make later copies from the device wait for an event of `computed`."""

    def send(self, buffer: Any, device: Any, offset: int, bytes: int) -> Any:
        """Copy from the start of a buffer to the device; return an event for the copy."""

    def fetch(self, buffer: Any, device: Any, offset: int, bytes: int) -> Any:
        """Copy from the device to the start of a buffer; return an event for the copy."""

    def wait(self, event: Any) -> None:
        """Wait for a copy."""


class Ticket:
    """A result in flight. It keeps the piece alive, because asynchronous copies do not."""

    def __init__(self, piece: Any, result: Any) -> None:
        self.piece, self.result = piece, result
        self.place: Any = None
        self.is_back: Future[None] | None = None

    def wait(self) -> Any:
        """Wait for the result and return it as an array on the host."""
        assert self.is_back is not None
        self.is_back.result()
        return self.place


class Buffer:
    """A pinned buffer, and the event of the copy that reads it, if any."""

    def __init__(self, memory: Any, address: int) -> None:
        self.memory, self.address = memory, address
        self.is_sent: Any = None


class Arriving(NamedTuple):
    """A part of a result that the device is copying to a buffer."""

    event: Any
    buffer: Buffer
    to: int
    bytes: int


class Copier:
    """Copies for one pass over `total` bytes of data."""

    def __init__(self, wire: Wire, total: int) -> None:
        self._wire = wire
        self._each = max(min(total, _BUFFER), 1)
        self._up: list[Buffer] = []
        self._down: list[Buffer] = []
        self._sent = 0
        self._threads = min(len(os.sched_getaffinity(0)), _MOST_THREADS)
        self._helpers = ThreadPoolExecutor(self._threads)
        self._returning = ThreadPoolExecutor(1, initializer=wire.enter)

    def send(self, source: int, device: Any, bytes: int) -> None:
        """Copy host memory to the device. When this returns, the caller may change the source."""
        self._up = self._up or self._buffers()
        for offset in range(0, bytes, self._each):
            part = min(self._each, bytes - offset)
            buffer = self._up[self._sent % _BUFFERS]
            self._sent += 1
            self._empty(buffer)
            self._copy(buffer.address, source + offset, part)
            buffer.is_sent = self._wire.send(buffer.memory, device, offset, part)

    def fetch(self, ticket: Ticket, device: Any, bytes: int) -> None:
        """Copy a result to its place, in the background."""
        ticket.is_back = self._returning.submit(self._fetch, ticket, device, bytes, self._wire.computed())

    def close(self) -> None:
        """Wait for all copies and free the buffers."""
        self._returning.shutdown()
        self._helpers.shutdown()
        for buffer in self._up:
            self._empty(buffer)
        self._up, self._down = [], []

    def _fetch(self, ticket: Ticket, device: Any, bytes: int, computed: Any) -> None:
        # Taking the ticket as an argument keeps the result alive during the copy.
        to = address_of(ticket.place)
        assert to is not None
        self._down = self._down or self._buffers()
        self._wire.follow(computed)
        last: Arriving | None = None
        for number, offset in enumerate(range(0, bytes, self._each)):
            part = min(self._each, bytes - offset)
            buffer = self._down[number % _BUFFERS]
            event = self._wire.fetch(buffer.memory, device, offset, part)
            if last is not None:
                self._land(last)
            last = Arriving(event, buffer, to + offset, part)
        if last is not None:
            self._land(last)

    def _empty(self, buffer: Buffer) -> None:
        event, buffer.is_sent = buffer.is_sent, None
        if event is not None:
            self._wire.wait(event)

    def _land(self, part: Arriving) -> None:
        self._wire.wait(part.event)
        self._copy(part.to, part.buffer.address, part.bytes)

    def _copy(self, to: int, source: int, bytes: int) -> None:
        """Copy with several threads. `memmove` through ctypes releases the GIL."""
        count = max(min(self._threads, bytes // _SMALLEST_PART), 1)
        cuts = [bytes * number // count for number in range(count + 1)]
        others = [
            self._helpers.submit(ctypes.memmove, to + first, source + first, last - first)
            for first, last in zip(cuts[1:], cuts[2:])
        ]
        ctypes.memmove(to, source, cuts[1])
        for other in others:
            other.result()

    def _buffers(self) -> list[Buffer]:
        return [Buffer(*self._wire.pinned(self._each)) for _ in range(_BUFFERS)]


def address_of(array: Any) -> int | None:
    """Return the address of a NumPy array or CPU tensor, or `None` if bytes cannot be written there directly."""
    if hasattr(array, "data_ptr"):
        is_plain = array.device.type == "cpu" and array.is_contiguous() and not array.is_conj() and not array.is_neg()
        return array.data_ptr() if is_plain and not array.requires_grad else None
    return array.ctypes.data if array.flags.c_contiguous and array.flags.writeable else None


def use_large_pages(array: Any) -> None:
    """Request huge pages for a new array. The first access to each small page takes longer than copying to it."""
    address = address_of(array)
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if address is None or advice is None:
        return
    first = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    bytes = (address + int(array.nbytes) - first) // mmap.PAGESIZE * mmap.PAGESIZE
    if bytes > _BUFFER:
        # Fails on a kernel without huge pages, which is harmless.
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(bytes), ctypes.c_int(advice))
