"""Bytes between the host and the device, as fast as the host's memory allows.

Copies to and from a device run beside everything else only out of pinned memory, and to pin memory takes longer than to
copy through it. So a few pinned buffers serve all pieces: while one is filled or emptied, by several threads, the device
copies another. A thread of its own brings results back, straight to their place.

What one copy is, a framework knows: a `Wire`.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, NamedTuple, Protocol, Tuple

# A new array of this shape on the host, of a result's type.
Make = Callable[[Tuple[int, ...]], Any]
# Where a result of this shape goes on the host.
Place = Callable[[Tuple[int, ...], Make], Any]

# Large enough that starting a copy costs little beside it, small enough that pinning them does.
_BUFFER = 32 << 20
# One that the device copies and one that the host does.
_BUFFERS = 2
# More threads than these do not copy faster.
_MOST_THREADS = 8
# What is smaller is copied sooner than handed to a thread.
_SMALLEST_PART = 1 << 20


class Wire(Protocol):
    """Single copies. Nothing here waits, except `wait`."""

    def enter(self) -> None:
        """Makes the device current on a thread that will copy."""

    def pinned(self, bytes: int) -> tuple[Any, int]:
        """A pinned buffer, and its address."""

    def computed(self) -> Any:
        """What says that everything is computed that was submitted until now."""

    def follow(self, computed: Any) -> None:
        """Copies from the device that come after this wait for it."""

    def send(self, buffer: Any, device: Any, offset: int, bytes: int) -> Any:
        """From the beginning of a buffer to the device; what says that it is there."""

    def fetch(self, buffer: Any, device: Any, offset: int, bytes: int) -> Any:
        """From the device to the beginning of a buffer; what says that it is there."""

    def wait(self, event: Any) -> None:
        """Waits for a copy."""


class Ticket:
    """A result on its way. What it is computed from is kept: copies do not hold their memory."""

    def __init__(self, piece: Any, result: Any) -> None:
        self.piece, self.result = piece, result
        self.place: Any = None
        self.is_back: Future[None] | None = None

    def wait(self) -> Any:
        """The result, on the host."""
        assert self.is_back is not None
        self.is_back.result()
        return self.place


class Buffer:
    """A pinned buffer, and the copy out of it that may be under way."""

    def __init__(self, memory: Any, address: int) -> None:
        self.memory, self.address = memory, address
        self.is_sent: Any = None


class Arriving(NamedTuple):
    """A part of a result that the device copies into a buffer."""

    event: Any
    buffer: Buffer
    to: int
    bytes: int


class Copier:
    """Copies for one pass over data of so many bytes."""

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
        """Sends what lies at an address. When this is back, it is in buffers or on the device: it may change."""
        self._up = self._up or self._buffers()
        for offset in range(0, bytes, self._each):
            part = min(self._each, bytes - offset)
            buffer = self._up[self._sent % _BUFFERS]
            self._sent += 1
            self._empty(buffer)
            self._copy(buffer.address, source + offset, part)
            buffer.is_sent = self._wire.send(buffer.memory, device, offset, part)

    def fetch(self, ticket: Ticket, device: Any, bytes: int) -> None:
        """Brings a result to its place, in the background."""
        ticket.is_back = self._returning.submit(self._fetch, ticket, device, bytes, self._wire.computed())

    def close(self) -> None:
        """Waits for what is on its way; the buffers are given back."""
        self._returning.shutdown()
        self._helpers.shutdown()
        for buffer in self._up:
            self._empty(buffer)
        self._up, self._down = [], []

    def _fetch(self, ticket: Ticket, device: Any, bytes: int, computed: Any) -> None:
        # The ticket is an argument so that the result is there as long as it is copied, whoever drops it.
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
        """`memmove`, which lets other threads of Python run, by several of them."""
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
    """Where bytes can be put into an array of NumPy or a CPU tensor as they are; `None` where they cannot."""
    if hasattr(array, "data_ptr"):
        is_plain = array.device.type == "cpu" and array.is_contiguous() and not array.is_conj() and not array.is_neg()
        return array.data_ptr() if is_plain and not array.requires_grad else None
    return array.ctypes.data if array.flags.c_contiguous and array.flags.writeable else None


def use_large_pages(array: Any) -> None:
    """Asks the kernel for large pages under a new array: to touch every small one for the first time costs more than the
    copy into it."""
    address = address_of(array)
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if address is None or advice is None:
        return
    first = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    bytes = (address + int(array.nbytes) - first) // mmap.PAGESIZE * mmap.PAGESIZE
    if bytes > _BUFFER:
        # A kernel without large pages says no, and the array is as good.
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(bytes), ctypes.c_int(advice))
