"""ctypes bindings for `libmakeroom_pool`. `makeroom.h` documents the functions."""

from __future__ import annotations

import ctypes
import os
from typing import Any, NamedTuple

_OUT_OF_MEMORY = 1


class PoolError(RuntimeError):
    """A pool operation failed."""

    # Tracebacks show the public name.
    __module__ = "makeroom"


class OutOfMemoryError(PoolError, MemoryError):
    """An allocation failed for lack of memory. `shortage` contains the figures, if they are known."""

    __module__ = "makeroom"

    shortage: Shortage | None = None


class _Structure(ctypes.Structure):
    """A structure whose first field is its size, so that later versions can add fields."""

    def __init__(self, **fields: int) -> None:
        super().__init__(size=ctypes.sizeof(type(self)), **fields)


def _fields(names: str) -> list[tuple[str, Any]]:
    return [("size", ctypes.c_size_t), *((name, ctypes.c_uint64) for name in names.split())]


class RawOptions(_Structure):
    _fields_ = _fields("limit spill history")


class RawStats(_Structure):
    _fields_ = _fields(
        "live pending rounding reserved cached peak_live peak_reserved blocks allocations refusals spilled peak_spilled "
        "driver_nanoseconds"
    )


class RawShortage(_Structure):
    _fields_ = _fields("requested device_free device_total largest live reserved limit spilled spill_quota")


class Stats(NamedTuple):
    """Figures of a pool, in bytes.

    `blocks`, `allocations` and `refusals` (failed allocations) are counts, `driver_nanoseconds` is a time. `reserved` =
    `live` + `rounding` + `cached`. `pending` is the part of `live` that is freed but still used by a stream.
    """

    live: int
    pending: int
    rounding: int
    reserved: int
    cached: int
    peak_live: int
    peak_reserved: int
    blocks: int
    allocations: int
    refusals: int
    spilled: int
    peak_spilled: int
    driver_nanoseconds: int


class Shortage(NamedTuple):
    """Figures of an allocation that failed, in bytes."""

    requested: int
    device_free: int
    device_total: int
    largest: int
    live: int
    reserved: int
    limit: int
    spilled: int
    spill_quota: int


def as_tuple(kind: Any, raw: _Structure) -> Any:
    """Convert a structure to a named tuple, without its size."""
    return kind(*(getattr(raw, name) for name in kind._fields))


def path() -> str:
    """Return the path of the library: `MAKEROOM_POOL_LIBRARY` if set, else the one in the wheel."""
    own = os.path.join(os.path.dirname(os.path.dirname(__file__)), "lib", "libmakeroom_pool.so")
    return os.environ.get("MAKEROOM_POOL_LIBRARY") or own


class Library:
    """The loaded library. Its functions return a status, which `call` turns into an exception."""

    def __init__(self) -> None:
        self.path = path()
        try:
            self.raw = ctypes.CDLL(self.path)
        except OSError as error:
            raise PoolError(
                f"cannot load {self.path}: {error}\n\nhint: pip install --force-reinstall makeroom"
            ) from error
        pool, address, stream = ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p
        self.raw.makeroom_last_error.restype = ctypes.c_char_p
        self.raw.makeroom_last_error.argtypes = []
        for name, arguments in {
            "pool_create": [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p],
            "pool_destroy": [pool],
            "pool_make_current": [pool],
            "alloc": [pool, ctypes.c_size_t, stream, ctypes.c_void_p],
            "free": [pool, address, stream],
            "record_stream": [pool, address, stream],
            "retire_stream": [pool, stream],
            "pool_stats": [pool, ctypes.c_void_p],
            "pool_reset_peaks": [pool],
            "pool_set_limit": [pool, ctypes.c_uint64],
            "pool_trim": [pool, ctypes.c_uint64, ctypes.c_void_p],
            "pool_snapshot": [pool, ctypes.c_char_p],
            "torch_configure": [ctypes.c_void_p],
            "torch_stats": [ctypes.c_int, ctypes.c_void_p],
            "torch_reset_peaks": [ctypes.c_int],
            "torch_snapshot": [ctypes.c_char_p],
            "last_shortage": [ctypes.c_void_p],
        }.items():
            function = getattr(self.raw, f"makeroom_{name}")
            function.argtypes, function.restype = arguments, ctypes.c_int

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function and raise an exception if it fails."""
        status = getattr(self.raw, f"makeroom_{name}")(*arguments)
        if status == 0:
            return
        text = (self.raw.makeroom_last_error() or b"").decode(errors="replace") or f"makeroom_{name} returned {status}"
        if status != _OUT_OF_MEMORY:
            raise PoolError(text)
        error = OutOfMemoryError(text)
        shortage = RawShortage()
        if self.raw.makeroom_last_shortage(ctypes.byref(shortage)) == 0:
            error.shortage = as_tuple(Shortage, shortage)
        raise error

    def address_of(self, name: str) -> int:
        """Return the address of a function, for callers outside Python."""
        address = ctypes.cast(getattr(self.raw, f"makeroom_{name}"), ctypes.c_void_p).value
        assert address is not None
        return address


_library: Library | None = None


def load() -> Library:
    """Load the library on the first call and return it."""
    global _library
    if _library is None:
        _library = Library()
    return _library
