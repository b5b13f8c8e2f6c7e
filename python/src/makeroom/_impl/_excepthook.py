"""Print the explanation under the traceback, in programs, threads, IPython and notebooks.

The previous hook prints the traceback first. Errors in this module are ignored, so that the hook never hides a traceback.
Exceptions that are not about GPU memory are not affected. `_failure` writes and prints the report.
"""

from __future__ import annotations

import os
import sys
import threading
from types import TracebackType
from typing import Any

from . import _failure
from ._errors import chain

# Classes by name, so that no framework must be imported. For JAX and TensorFlow the text decides.
_NAMES = {"OutOfMemoryError", "OutOfMemoryException", "ResourceExhaustedError", "CUDARuntimeError", "CudaAPIError"}
_WORDS = (
    "out of memory",
    "out_of_memory",
    "resource_exhausted",
    "resource exhausted",
    "memoryallocation",
    "std::bad_alloc",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
)
# Generic classes: only the text decides.
_PLAIN = {"MemoryError", "RuntimeError", "XlaRuntimeError", "JaxRuntimeError", "ValueError", "InternalError"}

_previous: dict[str, Any] = {}
_settings: dict[str, str | os.PathLike[str]] = {}
# `threading.__excepthook__` is new in Python 3.10.
_of_threads = threading.excepthook


def is_about_memory(error: BaseException) -> bool:
    """Return whether an exception, one of its causes or a member of its group is a GPU out-of-memory error."""
    return any(_says_so(each) for each in chain(error))


def install_excepthook(directory: str | os.PathLike[str] | None = None) -> None:
    """Print the explanation under the traceback of each uncaught out-of-memory error.

    The explanation goes to stderr; in a notebook, it is displayed as HTML. In a job of many ranks, the first that fails
    prints it, and the others print one line. Under `makeroom run`, which explains the failures that it records, only the
    cause is printed. Calling it again changes only the directory.

    Args:
        directory: Where each rank that runs out of memory writes its traceback and, with PyTorch, a memory snapshot:
            `rank3.log` and `rank3.pickle`. `%j` is replaced by the job ID, `%a` by the attempt, `%h` by the host.

    Examples:
        >>> import makeroom
        >>> makeroom.install_excepthook()
    """
    if directory is not None:
        _settings["directory"] = directory
    if _previous:
        return
    _previous["sys"] = sys.excepthook
    _previous["threading"] = threading.excepthook
    sys.excepthook = _hook
    threading.excepthook = _thread_hook
    _install_in_ipython()


def uninstall_excepthook() -> None:
    """Restore the hooks that `install_excepthook` replaced. Hooks that other code has replaced since then are kept.

    Examples:
        >>> makeroom.uninstall_excepthook()
    """
    if not _previous:
        return
    if sys.excepthook is _hook:
        sys.excepthook = _previous["sys"]
    if threading.excepthook is _thread_hook:
        threading.excepthook = _previous["threading"]
    shell = _previous.get("shell")
    if shell is not None:
        shell.custom_exceptions, shell.CustomTB = _previous["ipython"]
    _previous.clear()
    _settings.clear()


def _says_so(error: BaseException) -> bool:
    names = {kind.__name__ for kind in type(error).__mro__}
    if "OutOfMemoryError" in names:
        return True
    if not names & (_NAMES | _PLAIN):
        return False
    text = str(error).lower()
    return any(word in text for word in _WORDS)


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _previous.get("sys", sys.__excepthook__)(kind, error, trace)
    _print_verdict(error)


def _thread_hook(arguments: threading.ExceptHookArgs) -> None:
    _previous.get("threading", _of_threads)(arguments)
    if arguments.exc_value is not None:
        _print_verdict(arguments.exc_value)


def _print_verdict(error: BaseException) -> None:
    try:
        if is_about_memory(error):
            _failure.report(error, _settings.get("directory"))
    except Exception:
        # The traceback is already printed. A second error would only distract from it.
        pass


def _install_in_ipython() -> None:
    """Register a handler with IPython, which does not call `sys.excepthook`."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return
    _previous["shell"] = shell
    _previous["ipython"] = (shell.custom_exceptions, shell.CustomTB)
    was_registered, before = _previous["ipython"]

    def show(
        shell: Any, kind: type[BaseException], error: BaseException, trace: TracebackType, tb_offset: int | None = None
    ) -> Any:
        if was_registered and isinstance(error, was_registered):
            structured = before(kind, error, trace, tb_offset=tb_offset)
        else:
            # `showtraceback` would call the registered handler, which is this one.
            registered, shell.custom_exceptions = shell.custom_exceptions, ()
            try:
                structured = shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
            finally:
                shell.custom_exceptions = registered
        display_verdict(error)
        return structured

    shell.set_custom_exc((Exception,), show)


def display_verdict(error: BaseException) -> None:
    """Display the explanation of an out-of-memory error in IPython or a notebook, unless it was displayed already."""
    try:
        if not is_about_memory(error):
            return
        from IPython import get_ipython

        from ._show import display

        # A terminal cannot show HTML.
        if type(get_ipython()).__name__ == "TerminalInteractiveShell":
            _print_verdict(error)
            return
        from ._explanation import explain

        explanation = explain(error)
        if _failure.is_first_report(error):
            display(explanation)
    except Exception:
        _print_verdict(error)
