"""Find PyTorch if the program imported it. makeroom never imports it itself, because that takes seconds."""

from __future__ import annotations

import sys
from typing import Any


def on_cuda() -> Any:
    """Return PyTorch if the program imported it and it has a GPU, else `None`."""
    torch = sys.modules.get("torch")
    try:
        return torch if torch is not None and torch.cuda.is_available() else None
    except (AttributeError, RuntimeError):
        return None


def why_not() -> str:
    """Return the reason why `on_cuda` returns `None`, with a hint."""
    torch = sys.modules.get("torch")
    if torch is None:
        return "PyTorch is not imported\n\nhint: import torch first"
    built = getattr(getattr(torch, "version", None), "cuda", None)
    if built is None:
        return "this PyTorch build has no CUDA support\n\nhint: install a CUDA build: https://pytorch.org/get-started"
    return f"PyTorch (for CUDA {built}) found no GPU\n\nhint: run makeroom doctor"
