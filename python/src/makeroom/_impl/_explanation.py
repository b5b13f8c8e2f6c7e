"""Explain an out-of-memory failure from an exception, an error message, a file or a recording.

An `Explanation` prints the output of `makeroom why`, renders as HTML in notebooks, and has the fields of `makeroom why --json`.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from . import _native, _recorder
from ._answer import Fix, Verdict
from ._sizes import Size, parse_optional
from ._types import Cause, Path

if TYPE_CHECKING:
    from ._trace import Trace
    from ._watch import Site

Source = Union[BaseException, Path, bytes, "Trace", None]
"""What `explain` takes."""


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
    """The cause of a failure with its certainty, a breakdown of the memory, and fixes. It can be pickled and compared."""

    @property
    def cause(self) -> Cause:
        """Name of the cause, such as `fragmentation`; `none` if nothing failed."""
        cause: Cause = self._json["verdict"]["cause"]
        return cause

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
        return [_fix(fix) for fix in causes[0]["fixes"]] if causes else []

    @property
    def wont_help(self) -> list[str]:
        """Common advice that has no effect here, with the reason."""
        return list(self._json["will_not_help"])

    @property
    def next_steps(self) -> list[Fix]:
        """What to do to learn more, such as recording the program."""
        return [_fix(step) for step in self._json["next"]]

    @property
    def sites(self) -> list[Site]:
        """The lines of code that hold the most memory, with the lines that they called; empty if the input has no lines."""
        from ._watch import as_site

        return [as_site(site) for site in self._json["sites"]]

    @property
    def request_bytes(self) -> int | None:
        """Size of the allocation that failed; `None` if none failed or the size is unknown."""
        request = self._json["request"]
        return request["bytes"] if request else None

    def _repr_html_(self) -> str:
        from ._html import explanation

        return explanation(self._json)


def _fix(fix: dict[str, Any]) -> Fix:
    return Fix(fix["do"], fix["command"], fix["frees_bytes"])


def _line(line: dict[str, Any]) -> LedgerLine:
    return LedgerLine(line["what"], line["bytes"], line["note"], [_line(part) for part in line["lines"]])


def explain(
    source: Source = None,
    *,
    memory: Size | None = None,
    card: Size | None = None,
    device: int | None = None,
) -> Explanation:
    """Explain an out-of-memory failure.

    An exception is explained from the recording in a program that runs under `makeroom run`. An exception of JAX is explained
    together with JAX's profile of live buffers. Both show which line holds the memory, which the message does not.

    Args:
        source: An exception, an error message, a log, a `Trace`, or the path of a log, a PyTorch snapshot, a recording, an RMM
            log or a JAX memory profile, plain or compressed [default: the last uncaught exception of the session].
        memory: Memory that was available to the allocator, in bytes or as a string such as `"24GiB"`. For recordings.
        card: Size of the GPU; memory for the driver and the CUDA context is subtracted. Use this or `memory`.
        device: GPU to analyze [default: the one that failed, else the fullest].

    Returns:
        The explanation; `print` it for the text of `makeroom why`.

    Raises:
        FileNotFoundError: `source` is the path of a file that does not exist, or looks like one: a name with a suffix or a
            directory, and without spaces unless it begins with `/`, `./`, `../` or `~/`.
        OSError: The file cannot be opened.
        InputError: The file cannot be read as a log or a recording.
        UsageError: An argument is invalid, or `source` is omitted and there was no uncaught exception.

    Examples:
        >>> try:
        ...     train()
        ... except torch.OutOfMemoryError as error:
        ...     print(makeroom.explain(error))
        >>> makeroom.explain("snapshot.pickle", memory="6GiB").cause
        'fragmentation'
    """
    from ._trace import Trace

    sizes = parse_optional(memory), parse_optional(card)
    if source is None:
        source = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if source is None:
            raise _native.UsageError("no exception to explain\n\nhint: pass one: makeroom.explain(error)")
    if isinstance(source, BaseException):
        return from_recording(*sizes, device) or _of_exception(source)
    if isinstance(source, Trace):
        return Explanation(source._recording.why(*sizes, device))
    if isinstance(source, bytes):
        return Explanation(_native.explain(source.decode(errors="replace")))
    if isinstance(source, str) and not _is_path(source):
        return Explanation(_native.explain(source))
    if not isinstance(source, (str, os.PathLike)):
        expected = "an exception, an error message, a path or a Trace"
        raise TypeError(f"expected {expected}, not {type(source).__name__}")
    opened = _native.read(source)
    if isinstance(opened, str):
        return Explanation(_native.explain(opened))
    return Explanation(opened.why(*sizes, device))


why = explain
"""The name of the command, for the same function."""


def from_recording(
    memory: int | None = None, card: int | None = None, device: int | None = None
) -> Explanation | None:
    """Explain from the recording of this process. Return `None` if there is no recording or it does not show a failure."""
    recording = _recorder.read()
    if recording is None:
        return None
    explanation = Explanation(recording.why(memory, card, device, running=True))
    return None if explanation.cause in ("none", "undetermined") else explanation


_SUFFIX = re.compile(r"[^.\s:]\.[A-Za-z0-9_]{1,8}$")
# With spaces, only if it begins as a path and ends as a file that `explain` reads.
_WITH_SPACES = re.compile(r"(~|\.{0,2})/[^:]*\.(pickle|pkl|room|gz|zst|xz|zip|tar|log|txt|out|err|prof|json|csv)")


def _is_path(text: str) -> bool:
    """Return whether a string is a path rather than an error message.

    It is one if the file exists. A string without spaces that has a directory or a suffix is one too, so that a misspelled
    path is an error and not an error message; with spaces, if it begins with `/`, `./`, `../` or `~/`.
    """
    if not text or "\n" in text or "\0" in text or len(text) > 4096:
        return False
    if os.path.exists(text):
        return True
    if re.search(r"\s", text):
        return _WITH_SPACES.fullmatch(text) is not None
    return os.sep in text or _SUFFIX.search(text) is not None


def _of_exception(error: BaseException) -> Explanation:
    from . import _jax

    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    live = _jax.live_buffers(error)
    plain = Explanation(_native.explain(text, live))
    log = _jax.allocator_log(error, text, plain)
    return Explanation(_native.explain(text + log, live)) if log else plain
