"""Shell commands that make a setting, as Python: `export` has no effect in a running notebook.

`as_python` converts one command, `for_notebook` every command in a text that is printed in a notebook.
"""

from __future__ import annotations

import re
import shlex
import sys

# The new name of the allocator's variable works from this version on.
_NEW_NAME_SINCE = (2, 10)
_OLD_NAME, _NEW_NAME = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"

RESTART = "restart the kernel and run this before the framework is imported"

# A command has its own line in the text of a result, and is never wrapped.
_EXPORT = re.compile(r"^( *)(export .+)$", re.MULTILINE)


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook. One that only imports `ipykernel` is not."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def for_notebook(text: str) -> str:
    """Return the text of a result with its settings as Python."""

    def replaced(found: re.Match[str]) -> str:
        indent, command = found.groups()
        python = as_python(command)
        if python is None:
            return found.group()
        return "\n".join(f"{indent}{line}" for line in [f"# {RESTART}", *python.split("\n")])

    return _EXPORT.sub(replaced, text)


def as_python(command: str | None) -> str | None:
    """Return Python code with the effect of `export NAME=VALUE …`, or `None` for any other command."""
    if command is None or not command.startswith("export "):
        return None
    # An explanation or an alternative may follow in parentheses.
    setting = re.split(r"\s{2,}\(", command, maxsplit=1)[0]
    try:
        words = shlex.split(setting)[1:]
    except ValueError:
        return None
    pairs = [word.partition("=") for word in words]
    if not pairs or any(not re.fullmatch(r"[A-Za-z_]\w*", name) or not equals for name, equals, _ in pairs):
        return None
    # A value that the shell would compute is not a constant.
    if any("$" in value or "`" in value for _, _, value in pairs):
        return None
    return "\n".join(["import os", *(f"os.environ[{_named(name)!r}] = {value!r}" for name, _, value in pairs)])


def _named(name: str) -> str:
    """Return the name of a variable in the version of PyTorch that is imported."""
    torch = sys.modules.get("torch")
    numbers = re.match(r"(\d+)\.(\d+)", str(getattr(torch, "__version__", "")))
    is_new = numbers is not None and tuple(map(int, numbers.groups())) >= _NEW_NAME_SINCE
    return _NEW_NAME if name == _OLD_NAME and is_new else name
