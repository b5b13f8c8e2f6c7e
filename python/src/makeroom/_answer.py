"""Base class of results, with the text, JSON and notes from the native module."""

from __future__ import annotations

import json
from typing import Any

from . import _native, _show


class Answer:
    """A result that prints the same text as the command."""

    def __init__(self, answer: _native.Answer) -> None:
        self._answer = answer
        self._json: dict[str, Any] = json.loads(answer.json())

    @property
    def notes(self) -> list[str]:
        """Remarks about the input and the result."""
        return list(self._json["notes"])

    def to_dict(self) -> dict[str, Any]:
        """Return everything that the command prints with `--json`."""
        return json.loads(self._answer.json())

    def text(self, columns: int | None = None, styled: bool = False) -> str:
        """Return the text that the command prints.

        Args:
            columns: Width of the text [default: the terminal's, at most 110].
            styled: Include ANSI colors.
        """
        return self._answer.text(columns or _show.columns(), styled)

    def __repr__(self) -> str:
        return self.text()


class Verdict(Answer):
    """A result that names one cause."""

    @property
    def cause(self) -> str:
        """Name of the cause, such as `fragmentation` or `rank_holds_more`; `none` if nothing failed."""
        return self._json["verdict"]["cause"]

    @property
    def certainty(self) -> str:
        """Certainty of the cause: `certain`, `likely`, `possible` or `undetermined`."""
        return self._json["verdict"]["certainty"]

    @property
    def summary(self) -> str:
        """The verdict in one or two sentences, with the deciding figures."""
        return self._json["verdict"]["summary"]
