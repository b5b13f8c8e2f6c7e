"""Show results: width and color of text as the command chooses them, and IPython's display."""

from __future__ import annotations

import os
import shutil
from typing import Any, TextIO

MOST_COLUMNS = 110


def columns() -> int:
    """Return the width of the terminal, or `COLUMNS` if set, up to `MOST_COLUMNS`."""
    return min(shutil.get_terminal_size((MOST_COLUMNS, 24)).columns, MOST_COLUMNS)


def has_colours(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that supports colors."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def display(result: object) -> None:
    """Display a result in a notebook."""
    import IPython.display

    # IPython's function has no types.
    show: Any = IPython.display.display
    show(result)
