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
