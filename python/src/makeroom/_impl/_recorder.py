"""Flush and read the recording of this process, if it runs under `makeroom run`."""

from __future__ import annotations

import ctypes
import os

from . import _native

_MAGIC = b"\x8dROOM"


def is_there() -> bool:
    """Return whether this process is being recorded. The recorder is preloaded, so its symbols are global."""
    return _flush_function() is not None


def flush() -> bool:
    """Flush the recording. Return `False` if there is no recording, as before the first use of CUDA."""
    function = _flush_function()
    return function is not None and function() == 0


def path() -> str | None:
    """Return the path of this process's recording, or `None`."""
    for name in _open_files():
        try:
            with open(name, "rb") as file:
                if file.read(len(_MAGIC)) == _MAGIC:
                    return os.readlink(name)
        except OSError:
            continue
    return None


def read() -> _native.Recording | None:
    """Return the recording of this process up to now, or `None`."""
    try:
        return read_or_raise()
    except (OSError, ValueError):
        return None


def read_or_raise() -> _native.Recording | None:
    """Return the recording of this process up to now, or `None` if it has not used CUDA yet.

    Raises:
        OSError: There is a recording, but it cannot be opened.
        InputError: The file is not a recording.
    """
    if not flush():
        return None
    own = path()
    if own is None:
        raise FileNotFoundError("the recording of this process was moved or deleted")
    recording = _native.read(own)
    if isinstance(recording, str):
        raise _native.InputError(f"{own}: text, not a recording")
    return recording


def _flush_function() -> ctypes._FuncPointer | None:
    try:
        function = ctypes.CDLL(None).makeroom_recorder_flush
    except (AttributeError, OSError):
        return None
    function.restype = ctypes.c_int
    function.argtypes = []
    return function


def _open_files() -> list[str]:
    """Return links to the open regular files of this process. Pipes are excluded: reading would consume their data.

    The recorder's thread has its own descriptor table, so the tables of all threads are searched.
    """
    links = []
    for directory in ["/proc/self/fd", *_descriptor_tables_of_threads()]:
        try:
            links += [os.path.join(directory, name) for name in os.listdir(directory)]
        except OSError:
            continue
    return [link for link in links if os.path.isfile(link)]


def _descriptor_tables_of_threads() -> list[str]:
    try:
        return [f"/proc/self/task/{thread}/fd" for thread in os.listdir("/proc/self/task")]
    except OSError:
        return []
