"""The interactive page of `makeroom view`, in a notebook cell or as a file."""

from __future__ import annotations

import os
from html import escape

from . import _native
from ._sizes import Size, parse_optional, show
from ._trace import TraceOrPath, as_trace
from ._types import Path

# The page keeps its state in the fragment of its address. In a frame without an address of its own, relative addresses
# refer to the notebook, so the page needs a base address.
_BASE = '<base href="about:srcdoc">'


class View:
    """The page of one or more recordings. A notebook displays it; `save` writes it as one file, which needs no network."""

    def __init__(self, names: list[str], html: str, reduced: str | None, height: int, command: str | None = None) -> None:
        self._names, self._html, self._reduced, self._height = names, html, reduced, height
        self._command = command

    @property
    def html(self) -> str:
        """The page."""
        return self._html

    @property
    def notes(self) -> list[str]:
        """What the page leaves out to stay small."""
        return [self._reduced] if self._reduced else []

    def save(self, path: Path) -> None:
        """Write the page to a file, as `makeroom view -o` does.

        Args:
            path: The file to write. It can be opened in any browser, without a network.

        Raises:
            OSError: The file cannot be written.

        Examples:
            >>> makeroom.view("run.room").save("report.html")
        """
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._html)

    def __repr__(self) -> str:
        size = show(len(self._html.encode()))
        return f"<makeroom.View of {', '.join(self._names)}: {size}; a notebook displays it, .save(path) writes it to a file>"

    def _repr_html_(self) -> str:
        page = escape(self._html.replace("<head>", f"<head>{_BASE}", 1), quote=True)
        # The browser runs the page's script only if not a byte has changed, whatever the encoding of the notebook's page.
        page = page.encode("ascii", "xmlcharrefreplace").decode("ascii")
        from ._html import setting

        # The page is the same everywhere, so it has the shell's form of a setting.
        return setting(self._command) + (
            f'<iframe srcdoc="{page}" title="{escape(", ".join(self._names), quote=True)}" '
            f'style="width:100%;height:{self._height}px;border:1px solid rgba(127,127,127,.4)" '
            'sandbox="allow-scripts allow-downloads" allow="clipboard-write"></iframe>'
        )


def view(
    *sources: TraceOrPath,
    memory: Size | None = None,
    card: Size | None = None,
    what_if: bool = False,
    height: int = 900,
) -> View:
    """Return the interactive page of recordings. A notebook shows it in the cell.

    Args:
        *sources: A `Trace` or the path of a recording; two are compared side by side.
        memory: Memory that was available to the allocator, in bytes or as a string such as `"24GiB"`.
        card: Size of the GPU; memory for the driver and the CUDA context is subtracted. Use this or `memory`.
        what_if: Include how much other allocators would have reserved. This replays the recording.
        height: Height in the notebook, in pixels.

    Returns:
        The page: display it, or write it with `.save("report.html")`.

    Raises:
        OSError: A file cannot be opened.
        InputError: A file is not a recording.
        UsageError: An argument is invalid.

    Examples:
        >>> makeroom.view("before.pickle", "after.pickle")
    """
    if not sources:
        raise _native.UsageError("no recording to view\n\nhint: makeroom.view('run.room')")
    traces = [as_trace(source) for source in sources]
    recordings = [trace._recording for trace in traces]
    html, reduced = _native.page(recordings, parse_optional(memory), parse_optional(card), what_if)
    fixes = traces[0].explain(memory=memory, card=card).fixes if len(traces) == 1 else []
    command = fixes[0].command if fixes else None
    return View([os.path.basename(trace.path) for trace in traces], html, reduced, height, command)
