"""The recorder, where this process runs under `makeroom run`: bring its file up to date, and read it."""

from __future__ import annotations

import ctypes
import os

from . import _native

_MAGIC = b"\x8dROOM"


def is_there() -> bool:
    """Whether this process is recorded. The recorder is preloaded, so its functions are the program's own."""
    return _flush_function() is not None


def flush() -> bool:
    """Brings the recording up to date; says whether there is one. Before the first use of CUDA there is none."""
    function = _flush_function()
    return function is not None and function() == 0


def path() -> str | None:
    """The file that this process records into."""
    for name in _open_files():
        try:
            with open(name, "rb") as file:
                if file.read(len(_MAGIC)) == _MAGIC:
                    return os.readlink(name)
        except OSError:
            continue
    return None


def read() -> _native.Recording | None:
    """The recording of this process until now."""
    if not flush():
        return None
    own = path()
    if own is None:
        return None
    try:
        recording = _native.read(own)
    except (OSError, ValueError):
        return None
    return None if isinstance(recording, str) else recording


def _flush_function() -> ctypes._FuncPointer | None:
    try:
        function = ctypes.CDLL(None).makeroom_recorder_flush
    except (AttributeError, OSError):
        return None
    function.restype = ctypes.c_int
    function.argtypes = []
    return function


def _open_files() -> list[str]:
    """Links to the regular files that this process has open; a pipe must not be read."""
    folder = "/proc/self/fd"
    try:
        links = [os.path.join(folder, name) for name in os.listdir(folder)]
    except OSError:
        return []
    return [link for link in links if os.path.isfile(link)]
