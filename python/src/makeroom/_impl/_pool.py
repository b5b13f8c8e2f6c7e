"""Avoid fragmentation in the frameworks of this process: `use_pool` sets it up and returns a `Pool` with the figures.

PyTorch keeps its own allocator, with expandable segments turned on (`_pool_expandable.py`). With `pluggable=True`, `limit` or
`spill`, it uses separate pools in the library instead, one for each device and each of its memory pools, because it identifies
devices by number (`_pool_torch.py`). CuPy, RMM and callers of `Pool.allocate` share one pool for each device.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Callable

from . import _library, _pool_expandable
from ._library import OutOfMemoryError, PoolError, RawOptions, RawStats, Stats, as_tuple
from ._sizes import Size, counted, parse_optional, show
from ._types import Framework

if TYPE_CHECKING:
    from ._sources import Counter

__all__ = ["OutOfMemoryError", "Pool", "PoolError", "Stats", "current", "use_pool"]

FRAMEWORKS: tuple[Framework, ...] = ("torch", "cupy", "rmm")

_current: Pool | None = None


class Pool:
    """A pool of GPU memory that does not fragment: free pages are remapped to where they are needed.

    `use_pool` creates one for frameworks. `allocate` and `free` are for code that manages memory itself.

    Examples:
        >>> pool = makeroom.use_pool()
        >>> pool.stats().peak_reserved
    """

    def __init__(self, limit: Size | None = None, spill: Size | None = None, history: int = 0) -> None:
        self.library = _library.load()
        self.history = history
        self._limit, self._spill = parse_optional(limit) or 0, parse_optional(spill) or 0
        self._numbers: dict[int, int] = {}
        self._making = threading.Lock()
        self._homes: dict[int, tuple[int, int]] = {}
        self._torch: Any = None
        self._is_native = False
        self._is_expandable = False
        self.frameworks: tuple[str, ...] = ()

    def _options(self) -> RawOptions:
        return RawOptions(limit=self._limit, spill=self._spill, history=self.history)

    def allocate(self, bytes: int, stream: int = 0, device: int = 0) -> int:
        """Allocate memory for use on a stream.

        Args:
            bytes: Size of the block.
            stream: Handle of a CUDA stream [default: the default stream].
            device: Index of the GPU.

        Returns:
            The address.

        Raises:
            OutOfMemoryError: The memory is not available; the exception has the figures.

        Examples:
            >>> address = pool.allocate(1 << 20)
            >>> pool.free(address)
        """
        address = ctypes.c_void_p()
        number = self._number(device)
        self.library.call("alloc", number, bytes, stream, ctypes.byref(address))
        place = address.value or 0
        self._homes[place] = (number, stream)
        return place

    def free(self, address: int, stream: int | None = None) -> None:
        """Free memory in stream order.

        Args:
            address: What `allocate` returned; 0 has no effect.
            stream: Handle of a CUDA stream [default: the stream that the memory was allocated on].

        Raises:
            PoolError: The address is not in use.

        Examples:
            >>> pool.free(address)
        """
        if not address:
            return
        # Remove it before the free, because another thread may get the same address immediately.
        home = self._homes.pop(address, None)
        if home is None:
            raise PoolError(_unknown(address))
        number, asked_on = home
        try:
            self.library.call("free", number, address, asked_on if stream is None else stream)
        except PoolError:
            self._homes.setdefault(address, home)
            raise

    def record_stream(self, address: int, stream: int) -> None:
        """Record that another stream uses the memory too, so that freeing it waits for that stream.

        Args:
            address: What `allocate` returned.
            stream: Handle of the other CUDA stream.

        Raises:
            PoolError: The address is not in use.

        Examples:
            >>> pool.record_stream(address, other.cuda_stream)
        """
        home = self._homes.get(address)
        if home is None:
            raise PoolError(_unknown(address))
        self.library.call("record_stream", home[0], address, stream)

    def make_current(self, device: int = 0) -> None:
        """Make the pool's context current on this thread, for code that calls the driver itself.

        Args:
            device: Index of the GPU.

        Examples:
            >>> pool.make_current()
        """
        self.library.call("pool_make_current", self._number(device))

    def stats(self, device: int | None = None) -> Stats:
        """Return the figures of a device: the sum of PyTorch's memory and makeroom's pool.

        Args:
            device: Index of the GPU [default: the first that is in use].

        Examples:
            >>> pool.stats().live, pool.stats().peak_reserved
        """
        device = self._default_device() if device is None else device
        parts = []
        if device in self._numbers:
            parts.append(self._read("pool_stats", self._numbers[device]))
        if self._is_native:
            parts.append(_pool_expandable.stats(self._torch, device))
        elif self._torch is not None:
            parts.append(self._read("torch_stats", device))
        return Stats(*map(sum, zip(*parts))) if parts else Stats(*[0] * len(Stats._fields))

    def reset_peaks(self, device: int | None = None) -> None:
        """Reset the peaks to the current figures.

        Args:
            device: Index of the GPU [default: the first that is in use].

        Examples:
            >>> pool.reset_peaks()
        """
        device = self._default_device() if device is None else device
        if device in self._numbers:
            self.library.call("pool_reset_peaks", self._numbers[device])
        if self._is_native:
            self._torch.cuda.reset_peak_memory_stats(device)
        elif self._torch is not None:
            self.library.call("torch_reset_peaks", device)

    def trim(self, keep: Size = 0) -> int:
        """Release unused memory. For PyTorch's own allocator, call `torch.cuda.empty_cache()` instead.

        Args:
            keep: Amount of unused memory that each device keeps, in bytes or as a string such as `"1GiB"`.

        Returns:
            The number of bytes released.

        Examples:
            >>> pool.trim(keep="1GiB")
        """
        total = 0
        for number in self._numbers.values():
            given_back = ctypes.c_uint64()
            self.library.call("pool_trim", number, parse_optional(keep) or 0, ctypes.byref(given_back))
            total += given_back.value
        return total

    def destroy(self) -> None:
        """Wait for the GPU and release all memory, including memory in use. PyTorch's pools are kept.

        Examples:
            >>> pool.destroy()
        """
        numbers, self._numbers = self._numbers, {}
        self._homes.clear()
        for number in numbers.values():
            self.library.call("pool_destroy", number)

    def snapshot(self, path: str | os.PathLike[str]) -> None:
        """Write a snapshot of PyTorch's pools, or of the first device's pool if PyTorch is not used.

        It has PyTorch's format, which `makeroom.explain`, `makeroom.open` and pytorch.org/memory_viz read. With
        `use_pool(history=N)`, the snapshot contains the last N events.

        Args:
            path: The file to write.

        Examples:
            >>> pool.snapshot("pool.pickle")
            >>> makeroom.open("pool.pickle").view()
        """
        if self._is_native:
            self._torch.cuda.memory._dump_snapshot(os.fspath(path))
        elif self._torch is not None:
            self.library.call("torch_snapshot", os.fsencode(path))
        else:
            self.library.call("pool_snapshot", self._number(self._default_device()), os.fsencode(path))

    def _counters(self) -> Callable[[], list[Counter]]:
        """Return counters of the devices that this process uses, for `makeroom.watch`."""
        from ._sources import Counter

        def counter(device: int) -> Counter:
            def read() -> tuple[int, int]:
                stats = self.stats(device)
                return stats.live, stats.peak_live

            return Counter(device, read, lambda: self.reset_peaks(device))

        return lambda: [counter(device) for device in self._devices()]

    def __repr__(self) -> str:
        pooled = [name for name in self.frameworks if not (name == "torch" and self._is_native)]
        segments = " with expandable segments" if self._is_expandable else ""
        titles = [f"PyTorch's own allocator{segments}"] if self._is_native else []
        if pooled or not titles:
            titles.append(f"makeroom's pool under {', '.join(pooled) or 'no framework yet'}")
        lines = ["; ".join(titles)]
        for device in self._devices():
            stats = self.stats(device)
            lines.append(
                f"  GPU {device}: {show(stats.live)} live in {counted(stats.blocks, 'block')}, {show(stats.reserved)} reserved; "
                f"at the peak {show(stats.peak_live)} and {show(stats.peak_reserved)}"
            )
        return "\n".join(lines)

    def _devices(self) -> list[int]:
        own = set(self._numbers)
        # Querying PyTorch's pool of another device would create one there.
        if self._torch is not None and self._torch.cuda.is_initialized():
            own.add(self._torch.cuda.current_device())
        return sorted(own)

    def _default_device(self) -> int:
        return self._devices()[0] if self._devices() else 0

    def _number(self, device: int) -> int:
        number = self._numbers.get(device)
        if number is not None:
            return number
        # Prevent threads from creating two pools for a device, one of which would leak.
        with self._making:
            if device not in self._numbers:
                made = ctypes.c_uint64()
                options = self._options()
                self.library.call("pool_create", device, ctypes.byref(options), ctypes.byref(made))
                self._numbers[device] = made.value
            return self._numbers[device]

    def _read(self, name: str, which: int) -> Stats:
        raw = RawStats()
        self.library.call(name, which, ctypes.byref(raw))
        stats: Stats = as_tuple(Stats, raw)
        return stats


def _unknown(address: int) -> str:
    return f"{address:#x} is not in use here\n\nhint: it was already freed, or comes from another allocator"


def current() -> Pool | None:
    """Return the pool that `use_pool` created, or `None`."""
    return _current


def current_pooled() -> Pool | None:
    """Return the current pool, or `None` if it covers only PyTorch's own allocator, for which PyTorch's counters have lines."""
    is_torch_alone = _current is not None and _current._is_native and _current.frameworks == ("torch",)
    return None if is_torch_alone else _current


def use_pool(
    *frameworks: Framework,
    limit: Size | None = None,
    spill: Size | None = None,
    history: int = 0,
    pluggable: bool = False,
) -> Pool:
    """Avoid fragmentation: turn on expandable segments in PyTorch, and make CuPy and RMM use makeroom's pool.

    Call it before the first allocation on a GPU. Calling it again adds frameworks to the same pool and does not change its
    options. If PyTorch has to run without expandable segments, a warning states the reason.

    Args:
        *frameworks: Any of `"torch"`, `"cupy"` and `"rmm"` [default: those that are imported].
        limit: Maximum amount of memory to use on each device.
        spill: Maximum amount of host memory to use when the GPU is full.
        history: Number of recent events in a snapshot.
        pluggable: Make PyTorch use makeroom's pool too, as a pluggable allocator. `limit` and `spill` imply this.

    Returns:
        The pool; `print` it for its figures.

    Raises:
        PoolError: No framework is imported, or one cannot use the pool.

    Examples:
        >>> import torch, makeroom
        >>> pool = makeroom.use_pool()           # before the first tensor on a GPU
    """
    global _current
    unknown: list[str] = [name for name in frameworks if name not in FRAMEWORKS]
    if unknown:
        other = "makeroom run --pool -- python … serves JAX and others" if unknown[0] == "jax" else None
        hint = other or f"it supports {', '.join(FRAMEWORKS)}"
        raise PoolError(f"use_pool does not support {unknown[0]!r}\n\nhint: {hint}")
    wanted = frameworks or tuple(name for name in FRAMEWORKS if name in sys.modules)
    if not wanted:
        raise PoolError("no framework is imported yet\n\nhint: name one: makeroom.use_pool('torch')")
    pool = _current or Pool(limit, spill, history)
    for name in wanted:
        if name not in pool.frameworks:
            _install(name, pool, pluggable)
            pool.frameworks += (name,)
    _current = pool
    return pool


def _install(name: str, pool: Pool, pluggable: bool) -> None:
    from importlib import import_module

    try:
        module = import_module(name)
    except ImportError as error:
        raise PoolError(f"{name} is not installed\n\nhint: pip install {name}") from error
    if name == "torch":
        # Only makeroom's pool supports a limit and spilling.
        needs_pool = pluggable or bool(pool._limit or pool._spill)
        if not needs_pool and _pool_expandable.is_possible(module):
            pool._is_expandable = _pool_expandable.install(module, pool)
            pool._is_native = True
        else:
            from ._pool_torch import install

            install(module, pool)
        pool._torch = module
    elif name == "cupy":
        from ._pool_others import install_in_cupy

        install_in_cupy(module, pool)
    else:
        from ._pool_others import install_in_rmm

        install_in_rmm(module, pool)
