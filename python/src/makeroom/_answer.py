"""What every answer of the native part has: the command's text, its JSON, and what to know about it."""

from __future__ import annotations

import json
from typing import Any

from . import _native, _show


class Answer:
    """An answer that shows itself as the command does."""

    def __init__(self, answer: _native.Answer) -> None:
        self._answer = answer
        self._json: dict[str, Any] = json.loads(answer.json())

    @property
    def notes(self) -> list[str]:
        """What the reader should know about it."""
        return list(self._json["notes"])

    def to_dict(self) -> dict[str, Any]:
        """All of it, as the command prints it with `--json`."""
        return json.loads(self._answer.json())

    def text(self, columns: int | None = None, styled: bool = False) -> str:
        """What the command prints, for a terminal of so many columns."""
        return self._answer.text(columns or _show.columns(), styled)

    def __repr__(self) -> str:
        return self.text()
