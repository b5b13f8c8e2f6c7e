"""Sizes: a number of bytes, or a string such as "24GiB" or "800MB". Also numbers with a noun."""

from __future__ import annotations

from typing import Union

from . import _native

Size = Union[int, str]


def parse(size: Size) -> int:
    """Return a size in bytes.

    Raises:
        UsageError: It is not a size.
    """
    if isinstance(size, str):
        return _native.parse_size(size)
    if isinstance(size, bool) or not hasattr(size, "__index__"):
        raise _native.UsageError(f"{size!r} is not a size\n\nhint: use a number of bytes or a string such as '24GiB'")
    bytes = size.__index__()
    if bytes < 0:
        raise _native.UsageError(f"{bytes} is not a size: it is negative")
    return bytes


def parse_optional(size: Size | None) -> int | None:
    """Return a size in bytes, or `None` for `None`."""
    return None if size is None else parse(size)


def show(bytes: int) -> str:
    """Format a size as makeroom prints it. The size may be negative, as in a difference."""
    return f"−{_native.format_size(-bytes)}" if bytes < 0 else _native.format_size(bytes)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural if necessary."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
