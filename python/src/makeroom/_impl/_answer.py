"""Base class of results, with the text, JSON and notes from the native module.

Results can be pickled and compared. A pickled result contains its JSON, and its text at a few widths, because the text is
rendered from data that only the native module has.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Protocol, TypeVar

from . import _show
from ._settings import as_python, for_notebook, is_notebook
from ._types import Certainty

# Widths of the text in a pickled result.
_WIDTHS = (60, 80, 100, _show.MOST_COLUMNS)


class _Rendered(Protocol):
    """What the native module and a pickled result provide."""

    def json(self) -> str: ...
    def text(self, columns: int, styled: bool = ...) -> str: ...


class _Unpickled:
    """A result that was rendered before it was pickled."""

    def __init__(self, content: str, texts: dict[tuple[int, bool], str]) -> None:
        self._content, self._texts = content, texts

    def json(self) -> str:
        return self._content

    def text(self, columns: int, styled: bool = False) -> str:
        """Return the text at the largest width that fits, else at the smallest."""
        width = max((width for width in _WIDTHS if width <= columns), default=_WIDTHS[0])
        return self._texts[width, styled]


_Kind = TypeVar("_Kind", bound="Answer")


class Answer:
    """A result that prints the same text as the command."""

    def __init__(self, answer: _Rendered) -> None:
        self._answer = answer
        self._content = answer.json()
        self._json: dict[str, Any] = json.loads(self._content)

    @property
    def notes(self) -> list[str]:
        """Remarks about the input and the result."""
        return list(self._json["notes"])

    def to_dict(self) -> dict[str, Any]:
        """Return everything that the command prints with `--json`.

        Examples:
            >>> json.dump(explanation.to_dict(), file)
        """
        content: dict[str, Any] = json.loads(self._content)
        return content

    def text(self, columns: int | None = None, styled: bool = False) -> str:
        """Return the text that the command prints.

        Args:
            columns: Width of the text [default: the terminal's, at most 110]. A result that was pickled has widths 60, 80,
                100 and 110.
            styled: Include ANSI colors.

        Examples:
            >>> print(explanation.text(columns=80))
        """
        return self._answer.text(columns or _show.columns(), styled)

    def __repr__(self) -> str:
        text = self.text()
        return for_notebook(text) if is_notebook() else text

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, Answer) and other._content == self._content

    def __hash__(self) -> int:
        return hash(self._content)

    def __reduce__(self) -> tuple[Any, ...]:
        texts = {(width, styled): self._answer.text(width, styled) for width in _WIDTHS for styled in (False, True)}
        return _restore, (type(self), self._content, texts)


def _restore(kind: type[_Kind], content: str, texts: dict[tuple[int, bool], str]) -> _Kind:
    return kind(_Unpickled(content, texts))


class Fix(NamedTuple):
    """A fix: what to change, a command to paste, and the maximum amount that it frees."""

    do: str
    command: str | None
    frees_bytes: int | None

    @property
    def python(self) -> str | None:
        """The command as Python, for a program or a notebook; `None` if there is no command or it is not a setting.

        A setting must be made before the framework is imported. In a notebook, that means: restart the kernel, then run this
        in the first cell.
        """
        return as_python(self.command)


class Verdict(Answer):
    """A result that names one cause."""

    @property
    def title(self) -> str:
        """The cause as the command prints it, such as `FRAGMENTATION`."""
        return str(self._json["verdict"]["title"])

    @property
    def certainty(self) -> Certainty:
        """Certainty of the cause: `certain`, `likely`, `possible` or `undetermined`."""
        certainty: Certainty = self._json["verdict"]["certainty"]
        return certainty

    @property
    def summary(self) -> str:
        """The verdict in one or two sentences, with the deciding figures."""
        return str(self._json["verdict"]["summary"])
