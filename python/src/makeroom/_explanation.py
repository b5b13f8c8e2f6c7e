"""Why memory ran out: `explain` takes whatever is at hand, `why` is the command of that name.

An explanation shows itself as the command does, in a notebook as HTML, and has the figures of `makeroom why --json`.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any, NamedTuple, Union

from . import _native, _recorder
from ._answer import Answer
from ._sizes import Size, parse_optional

Path = Union[str, "os.PathLike[str]"]


class Fix(NamedTuple):
    """Something to do."""

    do: str
    command: str | None
    frees_bytes: int | None


class LedgerLine(NamedTuple):
    """A line of the account: its parts, if it has any, add up to it."""

    what: str
    bytes: int
    note: str | None
    lines: list[LedgerLine]


class Ledger(NamedTuple):
    """Where the memory of a device is. total_bytes = Σ lines + unaccounted_bytes, where a total is known."""

    name: str
    device: int | None
    total_bytes: int | None
    lines: list[LedgerLine]
    unaccounted_bytes: int


class Explanation(Answer):
    """One cause with its certainty, the account of the memory, and what to do."""

    @property
    def cause(self) -> str:
        """The cause's name, such as `fragmentation`; `none` where nothing failed."""
        return self._json["verdict"]["cause"]

    @property
    def certainty(self) -> str:
        """`certain`, `likely`, `possible` or `undetermined`."""
        return self._json["verdict"]["certainty"]

    @property
    def summary(self) -> str:
        """The verdict in a sentence or two, with the figures that decide it."""
        return self._json["verdict"]["summary"]

    @property
    def ledger(self) -> Ledger | None:
        """Where the memory is; `None` where the input has no figures for it."""
        ledger = self._json["ledger"]
        if ledger is None:
            return None
        lines = [_line(line) for line in ledger["lines"]]
        return Ledger(ledger["name"], ledger["device"], ledger["total_bytes"], lines, ledger["unaccounted_bytes"])

    @property
    def fixes(self) -> list[Fix]:
        """What to do about the cause, the most room first."""
        causes = self._json["causes"]
        return [Fix(fix["do"], fix["command"], fix["frees_bytes"]) for fix in causes[0]["fixes"]] if causes else []

    @property
    def request_bytes(self) -> int | None:
        """The size of the request that was refused, if one was and it is known."""
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
    """Says why memory ran out, from a file: a log, a PyTorch snapshot, an RMM log, a recording, plain or compressed.

    `memory` is what the allocator could take, `card` the size of a card, from which driver and context are deducted.
    """
    from ._trace import Trace

    if isinstance(source, Trace):
        return source.why(memory=memory, card=card, device=device)
    opened = _native.read(source)
    if isinstance(opened, str):
        return Explanation(_native.explain(opened))
    return Explanation(opened.why(parse_optional(memory), parse_optional(card), device))


def explain(error: BaseException | Path | bytes | None = None) -> Explanation:
    """Says why memory ran out, from what is at hand.

    `error` is an exception, the text of one, a log, or the path of a file that `why` reads. Without it, the last
    exception of the session is meant. In a program that `makeroom run` records, an exception is explained from the
    recording, which knows more than its text.
    """
    if error is None:
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if error is None:
            raise _native.UsageError("there is no exception to explain yet\n\nhint: makeroom.explain(error)")
    if isinstance(error, BaseException):
        return _from_recording() or Explanation(_native.explain(_text_of(error)))
    if isinstance(error, bytes):
        return Explanation(_native.explain(error.decode(errors="replace")))
    if isinstance(error, os.PathLike) or _is_path(error):
        return why(error)
    if not isinstance(error, str):
        raise TypeError(f"an exception, a text or a path was expected, not {type(error).__name__}")
    return Explanation(_native.explain(error))


def _is_path(text: object) -> bool:
    """Whether a text is the name of a file: error messages have spaces and lines, and are not there as files."""
    if not isinstance(text, str) or not text or "\n" in text or "\0" in text or len(text) > 4096:
        return False
    looks_like_one = " " not in text.strip() and text.endswith((".txt", ".log", ".room", ".pickle", ".csv", ".gz", ".zst"))
    return looks_like_one or os.path.isfile(text)


def _text_of(error: BaseException) -> str:
    """An exception as Python prints it, with what it followed from."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


def _from_recording() -> Explanation | None:
    """What the recording of this process says, if it says anything."""
    recording = _recorder.read()
    if recording is None:
        return None
    explanation = Explanation(recording.why(running=True))
    return None if explanation.cause in ("none", "undetermined") else explanation
