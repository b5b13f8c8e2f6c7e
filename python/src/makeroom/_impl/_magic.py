"""`%%makeroom`: measure a notebook cell, and explain it if it runs out of memory.

    %load_ext makeroom

    %%makeroom --view
    train(model, batches)
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import warnings
from typing import Any

from ._excepthook import display_verdict, is_about_memory
from ._native import UsageError
from ._show import display
from ._watch import WatchWarning, watch


class _Parser(argparse.ArgumentParser):
    """A parser that raises an exception instead of ending the kernel."""

    def error(self, message: str) -> Any:
        raise UsageError(f"{message}\n\n{self.format_usage().strip()}")

    def exit(self, status: int = 0, message: str | None = None) -> Any:
        raise UsageError(message or self.format_usage().strip())


def _parser() -> _Parser:
    parser = _Parser(prog="%%makeroom", description="Measure the GPU memory of this cell.", add_help=False)
    parser.add_argument("--no-lines", action="store_true", help="do not record lines, which is faster with PyTorch")
    parser.add_argument("--view", action="store_true", help="show the interactive page below the figures")
    parser.add_argument("--name", metavar="NAME", help="store the figures in this variable")
    return parser


def makeroom(line: str, cell: str) -> None:
    """Measure the GPU memory of a cell: its peak, the lines that hold memory, and what remains allocated.

    Options: `--view` shows the interactive page, `--no-lines` records no lines, `--name NAME` stores the figures in a variable.
    If the cell runs out of memory, the explanation follows the figures.
    """
    from IPython import get_ipython

    options = _parser().parse_args(shlex.split(line))
    # A name that cannot be stored is an error before the cell runs.
    if options.name is not None and not options.name.isidentifier():
        raise UsageError(f"--name: {options.name!r} is not the name of a variable")
    shell: Any = get_ipython()
    if _awaits(shell, cell):
        raise UsageError(
            "%%makeroom cannot measure a cell with await\n\nhint: measure the block: with makeroom.watch(lines=True) as w: await …"
        )
    with warnings.catch_warnings():
        # The figures, which are displayed, state the reason too.
        warnings.simplefilter("ignore", WatchWarning)
        watched = watch(lines=not options.no_lines)
    with watched:
        result = shell.run_cell(cell)
    if options.name is not None:
        shell.user_ns[options.name] = watched
    display(watched)
    error = result.error_before_exec or result.error_in_exec
    if error is not None and is_about_memory(error):
        display_verdict(error)
    trace = watched.trace
    if options.view and trace is not None and watched.devices:
        display(trace.view())
    elif options.view:
        print("makeroom: no recording of this cell to view: it used no GPU memory, or only counters were read")
    if error is not None:
        _hide_next_traceback(error)
        raise error


def _awaits(shell: Any, cell: str) -> bool:
    """Return whether a cell needs the event loop of the kernel, which is busy with this magic."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    try:
        return bool(shell.should_run_async(cell, transformed_cell=shell.transform_cell(cell)))
    except Exception:
        # The cell has a syntax error, which running it reports.
        return False


def _hide_next_traceback(error: Any) -> None:
    """Make IPython print no traceback of an exception the next time, because it has printed one. `%tb` prints it again."""

    def nothing() -> list[str]:
        del error._render_traceback_
        return []

    error._render_traceback_ = nothing


def load_ipython_extension(shell: Any) -> None:
    """Register `%%makeroom`; IPython calls this for `%load_ext makeroom`.

    Args:
        shell: IPython's shell.

    Examples:
        >>> %load_ext makeroom
    """
    shell.register_magic_function(makeroom, "cell", "makeroom")


def unload_ipython_extension(shell: Any) -> None:
    """Remove `%%makeroom`; IPython calls this for `%unload_ext makeroom`.

    Args:
        shell: IPython's shell.

    Examples:
        >>> %unload_ext makeroom
    """
    shell.magics_manager.magics["cell"].pop("makeroom", None)
