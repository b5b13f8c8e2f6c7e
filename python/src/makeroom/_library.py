"""`libmakeroom_pool` through ctypes: its structures, its functions, its errors. `makeroom.h` is its documentation."""

from __future__ import annotations

import ctypes
import os
from typing import Any, NamedTuple

_OUT_OF_MEMORY = 1


class PoolError(RuntimeError):
    """The pool could not do what it was asked for."""


class OutOfMemoryError(PoolError, MemoryError):
    """No memory is left; `shortage` has the account."""

    shortage: Shortage | None = None


class _Structure(ctypes.Structure):
    """Begins with its size, so that it may grow."""

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
    """A pool in figures, in bytes unless it says otherwise. reserved = live + rounding + cached; pending is a part of live."""

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
    """Why an allocation was refused, in bytes."""

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
    """The figures of a structure, without its size."""
    return kind(*(getattr(raw, name) for name in kind._fields))


def path() -> str:
    """Where the library is: beside this module, where the wheel puts it, or where `MAKEROOM_POOL_LIBRARY` says."""
    return os.environ.get("MAKEROOM_POOL_LIBRARY") or os.path.join(os.path.dirname(__file__), "libmakeroom_pool.so")


class Library:
    """The loaded library. Every function answers a status, which `check` turns into an error."""

    def __init__(self) -> None:
        self.path = path()
        try:
            self.raw = ctypes.CDLL(self.path)
        except OSError as error:
            raise PoolError(
                f"{self.path} could not be loaded: {error}\n\nhint: pip install --force-reinstall makeroom"
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
        """Calls a function; raises what it answers."""
        status = getattr(self.raw, f"makeroom_{name}")(*arguments)
        if status == 0:
            return
        text = (self.raw.makeroom_last_error() or b"").decode(errors="replace") or f"makeroom_{name} answered {status}"
        if status != _OUT_OF_MEMORY:
            raise PoolError(text)
        error = OutOfMemoryError(text)
        shortage = RawShortage()
        if self.raw.makeroom_last_shortage(ctypes.byref(shortage)) == 0:
            error.shortage = as_tuple(Shortage, shortage)
        raise error

    def address_of(self, name: str) -> int:
        """Where a function is, for those who call it themselves."""
        address = ctypes.cast(getattr(self.raw, f"makeroom_{name}"), ctypes.c_void_p).value
        assert address is not None
        return address


_library: Library | None = None


def load() -> Library:
    """The library, loaded once."""
    global _library
    if _library is None:
        _library = Library()
    return _library
