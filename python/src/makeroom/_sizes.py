"""Sizes as people give them: a number of bytes, or a text such as "24GiB" or "800MB"."""

from __future__ import annotations

from typing import Union

from . import _native

Size = Union[int, str]


def parse(size: Size) -> int:
    """The size in bytes."""
    if isinstance(size, str):
        return _native.parse_size(size)
    if isinstance(size, bool) or not hasattr(size, "__index__"):
        raise _native.UsageError(f"{size!r} is no size\n\nhint: a number of bytes, or a text such as '24GiB'")
    bytes = size.__index__()
    if bytes < 0:
        raise _native.UsageError(f"{bytes} is no size: it is below zero")
    return bytes


def parse_optional(size: Size | None) -> int | None:
    """The same for an option that may be left out."""
    return None if size is None else parse(size)


def show(bytes: int) -> str:
    """A size as makeroom prints it; a difference may be below zero."""
    return f"−{_native.format_size(-bytes)}" if bytes < 0 else _native.format_size(bytes)
