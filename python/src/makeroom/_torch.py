"""PyTorch as the program has it. It is never imported here: that takes seconds, and the program may not want it."""

from __future__ import annotations

import sys
from typing import Any


def on_cuda() -> Any:
    """PyTorch, if the program has imported it and it has a GPU."""
    torch = sys.modules.get("torch")
    try:
        return torch if torch is not None and torch.cuda.is_available() else None
    except (AttributeError, RuntimeError):
        return None


def why_not() -> str:
    """Why `on_cuda` has none, with what to do."""
    torch = sys.modules.get("torch")
    if torch is None:
        return "PyTorch is not imported\n\nhint: import torch first"
    built = getattr(getattr(torch, "version", None), "cuda", None)
    if built is None:
        return "this PyTorch is built without CUDA\n\nhint: https://pytorch.org/get-started has the command to install one"
    return f"PyTorch (for CUDA {built}) finds no GPU\n\nhint: makeroom doctor"
