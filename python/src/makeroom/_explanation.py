"""Explain an out-of-memory failure from an exception, a string or a file.

An `Explanation` prints the output of `makeroom why`, renders as HTML in notebooks, and has the fields of `makeroom why --json`.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any, NamedTuple, Union

from . import _native, _recorder
from ._answer import Verdict
from ._sizes import Size, parse_optional

Path = Union[str, "os.PathLike[str]"]


class Fix(NamedTuple):
    """A fix: what to change, a command to paste, and the maximum amount that it frees."""

    do: str
    command: str | None
    frees_bytes: int | None


class LedgerLine(NamedTuple):
    """One line of a ledger. If `lines` is not empty, its lines add up to this one."""

    what: str
    bytes: int
    note: str | None
    lines: list[LedgerLine]


class Ledger(NamedTuple):
    """Breakdown of a device's memory. If `total_bytes` is known, it is the sum of all lines and `unaccounted_bytes`."""

    name: str
    device: int | None
    total_bytes: int | None
    lines: list[LedgerLine]
    unaccounted_bytes: int


class Explanation(Verdict):
    """The cause of a failure with its certainty, a breakdown of the memory, and fixes."""

    @property
    def ledger(self) -> Ledger | None:
        """Breakdown of the memory; `None` if the input has no figures."""
        ledger = self._json["ledger"]
        if ledger is None:
            return None
        lines = [_line(line) for line in ledger["lines"]]
        return Ledger(ledger["name"], ledger["device"], ledger["total_bytes"], lines, ledger["unaccounted_bytes"])

    @property
    def fixes(self) -> list[Fix]:
        """Fixes for the cause, most effective first."""
        causes = self._json["causes"]
        return [Fix(fix["do"], fix["command"], fix["frees_bytes"]) for fix in causes[0]["fixes"]] if causes else []

    @property
    def request_bytes(self) -> int | None:
        """Size of the allocation that failed; `None` if none failed or the size is unknown."""
        request = self._json["request"]
        return request["bytes"] if request else None

    def _repr_html_(self) -> str:
        from ._html import explanation

        return explanation(self._json)


def _line(line: dict[str, Any]) -> LedgerLine:
    return LedgerLine(line["what"], line["bytes"], line["note"], [_line(part) for part in line["lines"]])


def why(
    source: Path | Any,
    *,
    memory: Size | None = None,
    card: Size | None = None,
    device: int | None = None,
) -> Explanation:
    """Explain an out-of-memory failure from a file.

    Args:
        source: A `Trace`, or the path of a log, a PyTorch snapshot, an RMM log or a recording, plain or compressed.
        memory: Memory that was available to the allocator, in bytes or as a string such as `"24GiB"`.
        card: Size of the GPU; memory for the driver and the CUDA context is subtracted. Use this or `memory`.
        device: GPU to analyze [default: the one that failed, else the fullest].

    Raises:
        OSError: The file cannot be opened.
        InputError: The file cannot be read as a log or a recording.
        UsageError: An argument is invalid.

    Example:
        >>> makeroom.why("snapshot.pickle", memory="6GiB").cause
        'fragmentation'
    """
    from ._trace import Trace

    if isinstance(source, Trace):
        return source.why(memory=memory, card=card, device=device)
    opened = _native.read(source)
    if isinstance(opened, str):
        return Explanation(_native.explain(opened))
    return Explanation(opened.why(parse_optional(memory), parse_optional(card), device))


def explain(error: BaseException | Path | bytes | None = None) -> Explanation:
    """Explain an out-of-memory failure.

    In a program that runs under `makeroom run`, an exception is explained from the recording, which has more detail
    than its message.

    Args:
        error: An exception, an error message, a log, or the path of a file that `why` reads [default: the last uncaught
            exception of the session].

    Raises:
        OSError: The file cannot be opened.
        InputError: The file cannot be read as a log or a recording.
        UsageError: `error` is omitted and there was no uncaught exception.

    Example:
        >>> try:
        ...     train()
        ... except torch.OutOfMemoryError as error:
        ...     print(makeroom.explain(error))
    """
    if error is None:
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if error is None:
            raise _native.UsageError("no exception to explain\n\nhint: pass one: makeroom.explain(error)")
    if isinstance(error, BaseException):
        return _from_recording() or Explanation(_native.explain(_text_of(error)))
    if isinstance(error, bytes):
        return Explanation(_native.explain(error.decode(errors="replace")))
    if isinstance(error, os.PathLike) or _is_path(error):
        return why(error)
    if not isinstance(error, str):
        raise TypeError(f"expected an exception, a string or a path, not {type(error).__name__}")
    return Explanation(_native.explain(error))


def _is_path(text: object) -> bool:
    """Return whether a string is a path rather than an error message, judging by its suffix or by whether the file exists."""
    if not isinstance(text, str) or not text or "\n" in text or "\0" in text or len(text) > 4096:
        return False
    looks_like_one = " " not in text.strip() and text.endswith((".txt", ".log", ".room", ".pickle", ".csv", ".gz", ".zst"))
    return looks_like_one or os.path.isfile(text)


def _text_of(error: BaseException) -> str:
    """Return an exception as Python prints it, with its causes."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


def _from_recording() -> Explanation | None:
    """Explain from the recording of this process. Return `None` if there is no recording or it does not show a failure."""
    recording = _recorder.read()
    if recording is None:
        return None
    explanation = Explanation(recording.why(running=True))
    return None if explanation.cause in ("none", "undetermined") else explanation
