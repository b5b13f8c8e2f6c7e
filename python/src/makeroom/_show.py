"""How wide and how colourful text is: as the command decides it."""

from __future__ import annotations

import os
import shutil
from typing import TextIO

MOST_COLUMNS = 110


def columns() -> int:
    """The width of the terminal, or of what `COLUMNS` says, up to what reads well."""
    return min(shutil.get_terminal_size((MOST_COLUMNS, 24)).columns, MOST_COLUMNS)


def has_colours(stream: TextIO) -> bool:
    """Whether somebody would see colours on a stream."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False
